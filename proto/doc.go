// Package proto holds the protobuf definitions and, below slicer/v1 (Slicer's
// own) and autosharding/v1 (gRPC's auto-sharding protocol), the Go code generated
// from them.
package proto

//go:generate go -C ../.ci/tools run ./protogen -I ../../proto
