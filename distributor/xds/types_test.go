package xds

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	xdsv3 "github.com/slicer-project/slicer/proto/xds/v3"
)

// What is sent and read has the names, numbers and types of Envoy's own messages.
func TestTypes(t *testing.T) {
	seen := make(map[protoreflect.FullName]bool)
	for _, c := range []struct{ ours, theirs proto.Message }{
		{&xdsv3.DiscoveryRequest{}, &discoveryv3.DiscoveryRequest{}},
		{&xdsv3.DiscoveryResponse{}, &discoveryv3.DiscoveryResponse{}},
		{&xdsv3.Listener{}, &listenerv3.Listener{}},
		{&xdsv3.HttpConnectionManager{}, &managerv3.HttpConnectionManager{}},
		{&xdsv3.Router{}, &routerv3.Router{}},
		{&xdsv3.RouteConfiguration{}, &routev3.RouteConfiguration{}},
		{&xdsv3.Cluster{}, &clusterv3.Cluster{}},
		{&xdsv3.ClusterConfig{}, &aggregatev3.ClusterConfig{}},
		{&xdsv3.ClusterLoadAssignment{}, &endpointv3.ClusterLoadAssignment{}},
	} {
		sameMessage(t, seen, c.ours.ProtoReflect().Descriptor(), c.theirs.ProtoReflect().Descriptor())
	}
	all := (&xdsv3.Router{}).ProtoReflect().Descriptor().ParentFile().Messages()
	for i := range all.Len() {
		if name := all.Get(i).FullName(); !seen[name] {
			t.Errorf("%s is in no message that is sent or read", name)
		}
	}
	for url, m := range map[string]proto.Message{
		typeURLs[listeners]: &listenerv3.Listener{}, typeURLs[routes]: &routev3.RouteConfiguration{},
		typeURLs[clusters]: &clusterv3.Cluster{}, typeURLs[endpoints]: &endpointv3.ClusterLoadAssignment{},
		managerURL: &managerv3.HttpConnectionManager{}, routerURL: &routerv3.Router{}, aggregateURL: &aggregatev3.ClusterConfig{},
	} {
		if want := "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()); url != want {
			t.Errorf("a message is called %s, want %s", url, want)
		}
	}
}

// sameMessage compares what ours has, and all messages and enums in it.
func sameMessage(t *testing.T, seen map[protoreflect.FullName]bool, ours, theirs protoreflect.MessageDescriptor) {
	t.Helper()
	if seen[ours.FullName()] || strings.HasPrefix(string(ours.FullName()), "google.") {
		return
	}
	seen[ours.FullName()] = true
	if ours.Name() != theirs.Name() {
		t.Errorf("%s stands for %s", ours.FullName(), theirs.FullName())
	}
	for i := range ours.Fields().Len() {
		f := ours.Fields().Get(i)
		w := theirs.Fields().ByNumber(f.Number())
		if w == nil || w.Name() != f.Name() || w.Kind() != f.Kind() || w.Cardinality() != f.Cardinality() {
			t.Errorf("%s is field %d, %v %v, want %v", f.FullName(), f.Number(), f.Cardinality(), f.Kind(), w)
			continue
		}
		if f.Message() != nil {
			sameMessage(t, seen, f.Message(), w.Message())
		}
		if f.Enum() != nil {
			for j := range f.Enum().Values().Len() {
				v := f.Enum().Values().Get(j)
				if want := w.Enum().Values().ByNumber(v.Number()); want == nil || want.Name() != v.Name() {
					t.Errorf("%s is %d, want %v", v.FullName(), v.Number(), want)
				}
			}
		}
	}
}
