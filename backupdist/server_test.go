package backupdist

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

func TestBadInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		a := assigned(t, nil, "web", 7, 10, 10)
		m.write(a)
		_, cc := start(t, m)
		good := subscribe(t, cc, hello("web"), nil)
		negative := hello("web")
		negative.Generation = -4
		for name, h := range map[string]*slicerv1.Hello{
			"job with a slash": hello("a/b"), "no job": hello(""), "no role": {Job: "web"}, "role 7": {Job: "web", Role: 7}, "role -7": {Job: "web", Role: -7},
			"negative generation": negative,
		} {
			if c := subscribe(t, cc, h, nil); c.code() != codes.InvalidArgument {
				t.Errorf("%s: %v", name, c.err)
			}
		}
		twice := subscribe(t, cc, hello("web"), nil)
		twice.stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: hello("web")}})
		if twice.code() != codes.InvalidArgument {
			t.Errorf("a second hello: %v", twice.err)
		}
		newer := subscribe(t, cc, hello("web"), nil)
		later := new(slicerv1.WatchRequest) // a message of a later version
		later.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1))
		newer.stream.Send(later)
		newer.expect(a, "whole")
		slicelet := subscribe(t, cc, &slicerv1.Hello{Job: "web", Role: slicerv1.Role_ROLE_SLICELET}, nil)
		slicelet.stream.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Report{Report: &slicerv1.Report{}}})
		slicelet.expect(a, "whole") // its reports are passed over
		mute, err := slicerv1.NewSubscriberServiceClient(cc).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := mute.Recv(); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("no hello: %v", err)
		}
		b := assigned(t, a, "web", 7, 11, 10)
		m.write(b)
		good.expect(b, "whole", "delta")
		newer.expect(b, "whole", "delta")
	})
}

func TestFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		m.put("empty")
		a := assigned(t, nil, "web", 7, 10, 100_000)
		b := assigned(t, a, "web", 7, 12, 100_000)
		m.write(a)
		m.write(b)
		s, cc := start(t, m)
		fetch := func(job string, g int64) (*assignment.Assignment, error) {
			stream, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: job, Generation: g})
			if err != nil {
				t.Fatal(err)
			}
			a, _, err := received(stream)
			return a, err
		}
		for _, c := range []struct {
			job  string
			g    int64
			want *assignment.Assignment
			code codes.Code
		}{
			{"web", 0, b, codes.OK}, {"web", 12, b, codes.OK}, {"web", 10, a, codes.OK}, {"web", 11, nil, codes.NotFound},
			{"empty", 0, nil, codes.NotFound}, {"none", 0, nil, codes.NotFound}, {"a/b", 0, nil, codes.InvalidArgument}, {"web", -1, nil, codes.InvalidArgument},
		} {
			got, err := fetch(c.job, c.g)
			if status.Code(err) != c.code || c.want != nil && (got == nil || got.Checksum() != c.want.Checksum()) {
				t.Errorf("%s %d: %v, %v", c.job, c.g, got, err)
			}
		}
		// What has changed while there was no subscriber is read first.
		newer := assigned(t, b, "web", 7, 14, 100_000)
		m.write(newer)
		synctest.Wait()
		if got, err := fetch("web", 0); err != nil || got.Generation() != newer.Generation() {
			t.Errorf("after a change: %v, %v", got, err)
		}
		// Close does not wait for a client that does not read.
		stream, err := slicerv1.NewSubscriberServiceClient(cc).Fetch(t.Context(), &slicerv1.FetchRequest{Job: "web"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.Close()
		for err == nil {
			_, err = stream.Recv()
		}
		if _, err := fetch("web", 0); status.Code(err) != codes.Unavailable {
			t.Errorf("after Close: %v", err)
		}
		if s.Ready() == nil {
			t.Error("ready after Close")
		}
	})
}

func TestAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemStore()
		m.put("web")
		_, cc := start(t, m)
		c := slicerv1.NewAdminServiceClient(cc)
		ctx := t.Context()
		if r, err := c.GetJob(ctx, &slicerv1.GetJobRequest{Name: "web"}); err != nil || r.Job.Version != 1 || r.Job.Config.Name != "web" {
			t.Errorf("get: %v, %v", r, err)
		}
		if r, err := c.ListJobs(ctx, &slicerv1.ListJobsRequest{}); err != nil || len(r.Jobs) != 1 {
			t.Errorf("list: %v, %v", r, err)
		}
		_, err := c.GetJob(ctx, &slicerv1.GetJobRequest{Name: "none"})
		expect := func(what string, err error, code codes.Code) {
			t.Helper()
			if status.Code(err) != code {
				t.Errorf("%s: %v", what, err)
			}
		}
		expect("get what there is not", err, codes.NotFound)
		_, err = c.GetJob(ctx, &slicerv1.GetJobRequest{Name: "a/b"})
		expect("get a bad name", err, codes.InvalidArgument)
		for _, method := range slicerv1.AdminService_ServiceDesc.Methods {
			name := method.MethodName
			if name == "GetJob" || name == "ListJobs" {
				continue
			}
			err := cc.Invoke(ctx, "/"+slicerv1.AdminService_ServiceDesc.ServiceName+"/"+name, &emptypb.Empty{}, &emptypb.Empty{})
			expect(name, err, codes.Unimplemented)
			if want := name + ": a backup distributor only reads the store; ask a distributor"; status.Convert(err).Message() != want {
				t.Errorf("%v, want %q", err, want)
			}
		}
		m.fail(store.ErrUnavailable)
		_, err = c.ListJobs(ctx, &slicerv1.ListJobsRequest{})
		expect("list without a store", err, codes.Unavailable)
	})
}

func TestNewIsPrecise(t *testing.T) {
	if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Store") {
		t.Errorf("no store: %v", err)
	}
	reg := prometheus.NewRegistry()
	for range 2 {
		s, err := New(Config{Store: newMemStore(), Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
	}
}
