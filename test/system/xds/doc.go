// Package xds tests that stock gRPC clients are sharded by the xDS that Distributors serve:
// grpc-go's here, and with the build tag system also those of Node and Python, which need
// node, npm and Debian's python3-grpcio. Their client is testdata/client.mjs and
// testdata/client.py.
package xds
