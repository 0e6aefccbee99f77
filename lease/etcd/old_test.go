package etcdlease_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/lease"
	etcdlease "github.com/slicer-project/slicer/lease/etcd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// raw passes messages through as they are on the wire.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (raw) Unmarshal(mem.BufferSlice, any) error { return nil }
func (raw) Name() string                         { return "proto" }

// oldMember answers as a member of an older release would: the members of the cluster,
// and its version.
func oldMember(address string) *grpc.Server {
	var member, members, status []byte
	member = protowire.AppendTag(member, 1, protowire.VarintType)
	member = protowire.AppendVarint(member, 1)
	member = protowire.AppendTag(member, 2, protowire.BytesType)
	member = protowire.AppendString(member, "infra-1")
	member = protowire.AppendTag(member, 4, protowire.BytesType)
	member = protowire.AppendString(member, "http://"+address)
	members = protowire.AppendTag(members, 2, protowire.BytesType)
	members = protowire.AppendBytes(members, member)
	status = protowire.AppendTag(status, 2, protowire.BytesType)
	status = protowire.AppendString(status, "3.5.12")

	server := grpc.NewServer(grpc.ForceServerCodecV2(raw{}))
	for service, method := range map[string]struct {
		name   string
		answer []byte
	}{"etcdserverpb.Cluster": {"MemberList", members}, "etcdserverpb.Maintenance": {"Status", status}} {
		server.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
			MethodName: method.name,
			Handler: func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
				return method.answer, nil
			},
		}}}, struct{}{})
	}
	return server
}

func TestOldMemberIsRefused(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := oldMember(lis.Addr().String())
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	defer func() { server.Stop(); <-served }()

	_, err = etcdlease.Open(t.Context(), etcdlease.Config{Endpoints: []string{lis.Addr().String()}})
	if !errors.Is(err, etcdlease.ErrVersion) || !strings.Contains(err.Error(), "infra-1") || !strings.Contains(err.Error(), "3.5.12") {
		t.Errorf("a member of 3.5.12: %v", err)
	}
}

func TestBadConfig(t *testing.T) {
	for _, c := range []etcdlease.Config{{}, {Endpoints: []string{"127.0.0.1:1"}, Prefix: "x"}, {Endpoints: []string{"127.0.0.1:1"}, Prefix: "/x/"}} {
		var field *assignment.FieldError
		if _, err := etcdlease.Open(t.Context(), c); !errors.As(err, &field) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A member of three dies: leases go on, and so do changes.
func TestMemberDies(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.NewCluster(t, 3)
	st := openAt(t, etcdlease.Config{Endpoints: cluster.Endpoints()})
	w, token := lead(t, st)
	change := lease.Change{Job: "job", Token: token, Wanted: 1}
	if _, err := lease.Advance(t.Context(), w, change); err != nil {
		t.Fatal(err)
	}
	cluster.Stop(0)
	change.Wanted = 2
	if got, err := lease.Advance(t.Context(), w, change); err != nil || got.Guard.Generation != 2 {
		t.Errorf("a change with one of three members dead: %+v, %v", got, err)
	}
}
