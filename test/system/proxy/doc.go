// Package proxy compares slicerproxy with httputil's plain ReverseProxy: before the
// same four servers of a real job, as processes of their own, in alternating rounds.
//
//	go test -run '^$' -bench . ./test/system/proxy        # with a load generator in Go
//	go test -v -tags system -run Wrk -bench Wrk -benchtime 1x ./test/system/proxy  # with wrk, which must be installed
package proxy
