package ctl_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestPending wants an exit code of its own for what is in force and not complete.
func TestPending(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply("name: web\n")
	w.tasks("web", "web-0", "web-1")
	conn, err := grpc.NewClient(w.distributor, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mute, err := slicerv1.NewSubscriberServiceClient(conn).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hello := &slicerv1.Hello{Job: "web", Role: slicerv1.Role_ROLE_CLERK, ClientId: "mute"}
	if err := mute.Send(&slicerv1.WatchRequest{Message: &slicerv1.WatchRequest_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	if _, err := mute.Recv(); err != nil { // and nothing is acknowledged
		t.Fatal(err)
	}
	w.eventually("the clerk counts", func() bool { return regexp.MustCompile(`1 clerk,`).MatchString(w.must("inspect", "web")) })
	// It is stored first, however long that takes: the short wait is for the clerk alone.
	w.must("drain", "web", "web-0", "--wait=false")
	r := w.ctl("drain", "web", "web-0", "--timeout", "5s", "--json")
	if r.code != 5 || !regexp.MustCompile(`^slicerctl: task web-0 owns nothing since generation \d+, but not every subscriber had acknowledged that within 5s; behind: .*mute.*\n$`).MatchString(r.errs) {
		t.Errorf("a drain that a clerk does not acknowledge: %+v", r)
	}
	var v struct {
		Generation int64
		Converged  bool
		Stragglers []string
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || v.Generation == 0 || v.Converged || !strings.Contains(strings.Join(v.Stragglers, " "), "mute") {
		t.Errorf("%v: %+v", err, v)
	}
	r = w.ctl("pin", "web", "--key", "later", "--task", "web-0")
	if r.code != 5 || !regexp.MustCompile(`^slicerctl: order \d+ is in force but not carried out yet: task web-0 is draining; the keys go there as soon as it may own slices\n$`).MatchString(r.errs) {
		t.Errorf("a pin to a task that drains: %+v", r)
	}
}
