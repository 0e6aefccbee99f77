package distributor

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/assignment"
)

func TestConfigIsRefusedPrecisely(t *testing.T) {
	for field, c := range map[string]Config{
		"ID":           {ID: "a b", Assigners: []string{"h:1"}},
		"Zone":         {Zone: "a/b", Assigners: []string{"h:1"}},
		"Assigners":    {},
		"Assigners[1]": {Assigners: []string{"h:1", "h"}},
		"Assigners[0]": {Assigners: []string{"h:99999"}},

		"Upstreams":         {Assigners: []string{"h:1"}, Upstreams: []string{"h:2"}},
		"ServeDistributors": {Upstreams: []string{"h:1"}, ServeDistributors: true},
	} {
		d, err := New(c)
		var fe *assignment.FieldError
		if !errors.As(err, &fe) || fe.Field != field || d != nil {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestTwoOnOneRegisterer(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := Config{ID: "d1", Assigners: []string{"127.0.0.1:1"}, Registerer: reg}
	first, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), "ID") {
		t.Errorf("two of one ID: %v", err)
	}
	cfg.ID = "d2"
	second, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	second.Close()
	cfg.ID = "d1"
	again, err := New(cfg)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	again.Close()
}
