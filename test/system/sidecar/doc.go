// Package sidecar compares slicerproxy as a sidecar with httputil's plain ReverseProxy: beside the
// same server, as processes of their own, in alternating rounds, by the CPU that each takes for a
// request.
//
//	go test -run '^$' -bench . -benchtime 1x ./test/system/sidecar
package sidecar
