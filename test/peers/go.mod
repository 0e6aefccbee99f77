module github.com/slicer-project/slicer/test/peers

go 1.26.0

require (
	github.com/buraksezer/consistent v0.10.0
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/slicer-project/slicer v0.0.0
)

replace github.com/slicer-project/slicer => ../..
