// Package access is a walk through who may do what, for operators: walk.sh makes an authority
// and certificates with openssl, gives three teams their jobs, and shows what is refused.
//
//	go build -o bin ./cmd/slicer ./cmd/slicerctl && test/examples/access/walk.sh bin
package access
