// Package proto holds the protobuf definitions and, below slicer/v1 (Slicer's
// own), autosharding/v1 (gRPC's auto-sharding protocol) and xds/v3 (what of xDS is
// used), the Go code generated from them.
package proto

//go:generate go -C ../.ci/tools run ./protogen -I ../../proto
