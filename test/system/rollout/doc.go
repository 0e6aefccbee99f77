// Package rollout runs what the files of deploy/ say: each program takes the arguments that
// Compose, the manifests and the units give it, and pods of deploy/kubernetes, as processes of
// this machine, are upgraded in the order that deploy/docs/DEPLOY.md tells, while clients call.
// With -images it also builds the images, by buildah.
package rollout
