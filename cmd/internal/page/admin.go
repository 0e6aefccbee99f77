package page

import (
	"google.golang.org/grpc"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// AdminOf returns the AdminService among the services that register adds to a server, nil if
// there is none. Calls of it are calls of methods, within the process.
func AdminOf(register func(grpc.ServiceRegistrar)) slicerv1.AdminServiceServer {
	var f finder
	register(&f)
	return f.admin
}

type finder struct{ admin slicerv1.AdminServiceServer }

// RegisterService implements grpc.ServiceRegistrar.
func (f *finder) RegisterService(_ *grpc.ServiceDesc, impl any) {
	if a, ok := impl.(slicerv1.AdminServiceServer); ok {
		f.admin = a
	}
}
