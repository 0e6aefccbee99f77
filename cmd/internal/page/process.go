package page

import (
	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// Of makes the page of a process and shows it at its HTTP port. register is that of the part
// whose AdminService answers.
func Of(p *run.Process, kind, id string, register func(grpc.ServiceRegistrar)) *Page {
	page := New(Config{Kind: kind, ID: id, Admin: AdminOf(register), Rights: p.Rights, Identity: p.Identity, Names: p.Flags.PageNames(), Logger: p.Log})
	p.Show(page)
	return page
}
