// Package proto holds the protobuf definitions and, below slicer/v1, the Go
// code generated from them.
package proto

//go:generate go tool -modfile=../.ci/tools/go.mod buf generate
