package house

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	autoshardingv1 "github.com/slicer-project/slicer/proto/autosharding/v1"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestDocsProtocols holds PROTOCOLS.md to the services: it names each call, and each
// message that a stream carries.
func TestDocsProtocols(t *testing.T) {
	text := pages(t)["deploy/docs/PROTOCOLS.md"]
	named := 0
	want := func(name protoreflect.Name, of protoreflect.FullName) {
		if named++; !strings.Contains(text, "`"+string(name)+"`") && !strings.Contains(text, "### "+string(name)+"\n") {
			t.Errorf("PROTOCOLS.md does not name %s of %s", name, of)
		}
	}
	for _, f := range []protoreflect.FileDescriptor{
		slicerv1.File_slicer_v1_subscriber_proto, slicerv1.File_slicer_v1_assigner_proto, slicerv1.File_slicer_v1_relay_proto,
		slicerv1.File_slicer_v1_admin_proto, slicerv1.File_slicer_v1_lease_proto, autoshardingv1.File_autosharding_v1_autosharding_proto,
	} {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			want(s.Name(), f.FullName())
			for k := range s.Methods().Len() {
				m := s.Methods().Get(k)
				want(m.Name(), s.FullName())
				if !m.IsStreamingClient() {
					continue
				}
				for _, side := range []protoreflect.MessageDescriptor{m.Input(), m.Output()} {
					for j := range side.Fields().Len() {
						if what := side.Fields().Get(j).Message(); what != nil {
							want(what.Name(), side.FullName())
						}
					}
				}
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d names", named)
	}
}
