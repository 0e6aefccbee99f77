// Package sidecar shows how a server in any language is sharded without a line of code, and tests
// that it works.
//
// server.js and server.py, and server in Go for tests that have nothing else, count users' visits in
// memory and know nothing of Slicer. Each has a slicerproxy with --upstream beside it, which makes it
// a task of the job visits; browsers ask a slicerproxy before them all, with the rules in
// rules.yaml. The guide has the commands:
//
//	node server.js 3000 &
//	slicerproxy --job visits --task visits-0 --upstream 127.0.0.1:3000 --distributors 127.0.0.1:4720 --listen 127.0.0.1:8000 &
//	slicerproxy --config rules.yaml --distributors 127.0.0.1:4720 --listen 127.0.0.1:8080 &
//	curl http://127.0.0.1:8080/users/ada
package sidecar
