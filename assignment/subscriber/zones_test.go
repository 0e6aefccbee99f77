package subscriber

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/assignment/subscriber/subscribertest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// A subscriber goes to the Distributor of its zone, to another one while that is dead, and
// back when it lives again. What it has in its first order does not matter: many of them do so.
func TestZones(t *testing.T) {
	for i := range 8 {
		synctest.Test(t, func(t *testing.T) {
			n := subscribertest.NewNetwork()
			a := subscribertest.History(t, 1, 1)[0]
			live := func(addr string) *subscribertest.Server {
				s := n.Start(addr)
				s.Say(&slicerv1.Status{TakesReports: true, Mode: slicerv1.Mode_MODE_AFFINITY})
				s.Put(a)
				return s
			}
			far, near := live(d1), live(d2)
			defer far.Stop()
			s := start(t, n, func(c *Config) {
				c.ClientID, c.Zone = string(rune('a'+i)), "eu-1"
				c.Distributors = []string{"us-1=" + d1, "eu-1=" + d2}
			})
			defer s.Close()
			at := func(addr string) func(*State) bool {
				return func(s *State) bool { return s.Peer == addr && s.Link == Distributor }
			}
			await(t, s, "the one of its zone", at(d2))
			if n.Dials(d1) > 0 {
				t.Error("it has tried the other one, too")
			}
			time.Sleep(time.Minute)
			near.Stop()
			await(t, s, "the other one", at(d1))
			near = live(d2)
			defer near.Stop()
			time.Sleep(29 * time.Second)
			if !at(d1)(s.State()) {
				t.Error("it is back at once, as all others are")
			}
			time.Sleep(61 * time.Second)
			await(t, s, "home", at(d2))
			time.Sleep(time.Hour)
			if !at(d2)(s.State()) || far.Streams() != 0 {
				t.Errorf("it does not stay: %+v", s.State())
			}
		})
	}
}

func TestServers(t *testing.T) {
	servers := []string{"us=a:1", "b:1", "eu=c:1", "us=d:1", "=e:1"}
	for zone, want := range map[string]string{"us": "a:1 d:1", "eu": "c:1", "asia": "", "": ""} {
		addrs, near := addresses(servers, zone)
		if strings.Join(addrs, " ") != "a:1 b:1 c:1 d:1 e:1" || strings.Join(near, " ") != want {
			t.Errorf("%q: %v, near %v, want %s", zone, addrs, near, want)
		}
	}
	if zone, addr := SplitServer("a=b=[::1]:80"); zone != "a=b" || addr != "[::1]:80" {
		t.Errorf("%q %q", zone, addr)
	}
	for _, bad := range []string{"eu=", "eu=host", "e u=host:80", "eu/1=host:80", "eu=host:0"} {
		cfg := Config{Job: "job", Role: Clerk, ClientID: "me", Distributors: []string{bad}}
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "host:port or zone=host:port") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	cfg := Config{Job: "job", Role: Clerk, ClientID: "me", Zone: "us", Distributors: servers, Backups: slices.Clone(servers)}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}
