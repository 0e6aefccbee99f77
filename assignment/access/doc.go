// Package access decides who may do what: an identity is read off a verified certificate
// (Of), a policy (Parse) says which identities are the control plane's own and which are
// administrators', and what holds for jobs that do not say it themselves; a job's config says
// the rest (assignment.Access). May puts them together. It is pure; package
// assignment/access/enforce applies it to calls.
//
// A policy is a YAML file of one document, each field of which may be left out:
//
//	plane: ["spiffe://corp/ns/slicer/**"]     # assigners, Distributors, Backup Distributors
//	admin: ["spiffe://corp/user/sre/*"]       # may do all that there is to do with jobs
//	proxies: ["spiffe://corp/ns/edge/proxy"]  # their connections carry the streams of many
//	jobs:                                     # what holds for jobs without access
//	  own: ["spiffe://corp/ns/{job}/**"]
//	  watch: ["spiffe://corp/**"]
//	  configure: ["spiffe://corp/ns/{job}/deployer"]
//	bounds:
//	  default: {jobs: 100, tasks: 10000}      # of one identity
//	  identities:                             # of those that match, the first counts
//	    "spiffe://corp/ns/search/**": {jobs: 1000}
//
// Patterns are those of assignment.AccessOf. Without a policy, a nil *Policy, everything is
// allowed to all.
package access
