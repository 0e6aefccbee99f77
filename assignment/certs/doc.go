// Package certs is the certificate, key and authorities of a process, in PEM files that
// are read again when they change, for gRPC and net/http. Whatever renews the files needs
// to tell the process nothing, and connections that are open go on.
//
// The same Source serves a program's clerks, slicelets and servers:
//
//	tls, err := certs.New(certs.Config{Cert: "tls.crt", Key: "tls.key", CA: "ca.crt"})
//	...
//	c, err := clerk.New(clerk.Config{Job: "cache", Distributors: servers, DialOptions: tls.DialOptions()})
//
// The files are looked at when a connection is set up and when metrics are gathered, so
// that there is no goroutine, and nothing to close. A certificate and its key are used
// together or not at all, and so are all the authorities of a file: files that are no good
// leave in use what was read before, which is logged once for each change of theirs and
// counted, and are tried again. So it does not matter which of two files is replaced first,
// nor whether by renaming or in place.
//
// To replace an authority without a connection refused: put the old and the new one into
// the file of every process, then renew certificates, then take the old one out.
package certs

// What files hold, in FileError, and in the label of the metrics before what they are for.
const (
	Certificate = "certificate"
	Authorities = "authorities"
)
