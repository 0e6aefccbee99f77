package backupdist

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/store"
	"github.com/slicer-project/slicer/backupdist/protocol"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Jobs of several stores are served; a store that is down is nothing to those of
// another, and its own are served as they were read last.
func TestSeveralStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main, eu := newMemStore(), newMemStore()
		main.put("here")
		here := assigned(t, nil, "here", 7, 10, 10)
		main.write(here)
		eu.put("there")
		there := assigned(t, nil, "there", 8, 10, 10)
		eu.write(there)
		eu.fail(store.ErrUnavailable)

		reg := prometheus.NewRegistry()
		s, cc := startWith(t, Config{Stores: []NamedStore{{"main", main}, {"eu", eu}}, Registerer: reg})
		subscribe(t, cc, hello("here"), nil).expect(here, "whole")
		if err := s.Ready(); err != nil {
			t.Error(err)
		}
		// It may be in the store that is down.
		for _, job := range []string{"there", "nowhere"} {
			c := subscribe(t, cc, hello(job), nil)
			time.Sleep(protocol.Patience)
			if c.code() != codes.Unavailable || !strings.Contains(c.err.Error(), "store eu") {
				t.Errorf("job %s while a store is down: %v", job, c.err)
			}
		}
		watched := func(want string) {
			t.Helper()
			text := "# HELP slicer_backupdist_store_watched 1 while a store answers, 0 while it does not.\n# TYPE slicer_backupdist_store_watched gauge\n" + want
			if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "slicer_backupdist_store_watched"); err != nil {
				t.Error(err)
			}
		}
		watched("slicer_backupdist_store_watched{store=\"eu\"} 0\nslicer_backupdist_store_watched{store=\"main\"} 1\n")
		list := func() (names []string, unanswered []string) {
			t.Helper()
			resp, err := slicerv1.NewAdminServiceClient(cc).ListJobs(t.Context(), &slicerv1.ListJobsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range resp.Jobs {
				names = append(names, j.Config.Name)
			}
			return names, resp.Unanswered
		}
		if names, unanswered := list(); !slices.Equal(names, []string{"here"}) || !slices.Equal(unanswered, []string{"eu"}) {
			t.Errorf("list %v without %v", names, unanswered)
		}

		eu.fail(nil)
		time.Sleep(2 * protocol.RetryMax)
		synctest.Wait()
		watched("slicer_backupdist_store_watched{store=\"eu\"} 1\nslicer_backupdist_store_watched{store=\"main\"} 1\n")
		c := subscribe(t, cc, hello("there"), nil)
		c.expect(there, "whole")
		if c := subscribe(t, cc, hello("nowhere"), nil); c.code() != codes.NotFound {
			t.Errorf("job that is nowhere: %v", c.err)
		}
		if names, unanswered := list(); !slices.Equal(names, []string{"here", "there"}) || unanswered != nil {
			t.Errorf("list %v without %v", names, unanswered)
		}

		// The first store goes: what was read stays, and the other's jobs change.
		main.fail(store.ErrUnavailable)
		next := assigned(t, there, "there", 8, 20, 10)
		eu.write(next)
		c.expect(next, "whole", "delta")
		subscribe(t, cc, hello("here"), nil).expect(here, "whole")
		get := func(job string) error {
			_, err := slicerv1.NewAdminServiceClient(cc).GetJob(t.Context(), &slicerv1.GetJobRequest{Name: job})
			return err
		}
		if err := get("there"); err != nil {
			t.Error(err)
		}
		if err := get("here"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "store main") {
			t.Errorf("config of a job of the store that is down: %v", err)
		}
		eu.fail(store.ErrUnavailable)
		if _, err := slicerv1.NewAdminServiceClient(cc).ListJobs(t.Context(), &slicerv1.ListJobsRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("list without any store: %v", err)
		}
	})
}

func TestConfigOfStores(t *testing.T) {
	m := newMemStore()
	for want, cfg := range map[string]Config{
		`stores: 0 is not allowed: want at least one, or else Store`: {},
		`stores: 1 is not allowed: want at least one, or else Store`: {Store: m, Stores: []NamedStore{{"a", m}}},
		`stores: "a" is not allowed: want stores that are open`:      {Stores: []NamedStore{{Name: "a"}}},
		`stores: "a" is not allowed: want distinct names`:            {Stores: []NamedStore{{"a", m}, {"a", m}}},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
