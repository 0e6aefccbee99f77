package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/store"
)

func ExampleParseURL() {
	u, err := store.ParseURL("etcd://10.0.0.1:2379,10.0.0.2:2379/slicer/eu")
	fmt.Println(u.Endpoints, u.Prefix, err)
	_, err = store.ParseURL("etcd://10.0.0.1/slicer")
	fmt.Println(err)
	// Output:
	// [10.0.0.1:2379 10.0.0.2:2379] /slicer/eu <nil>
	// store endpoint: "10.0.0.1" is not allowed: want HOST:PORT with a port of 1 to 65535
}

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		in   string
		want store.URL
	}{
		{"etcd://h1:2379,h2:2379/prefix", store.URL{Scheme: "etcd", Endpoints: []string{"h1:2379", "h2:2379"}, Prefix: "/prefix"}},
		{"etcd://h1:2379", store.URL{Scheme: "etcd", Endpoints: []string{"h1:2379"}, Prefix: "/slicer"}},
		{"etcd://h1:2379/", store.URL{Scheme: "etcd", Endpoints: []string{"h1:2379"}, Prefix: "/slicer"}},
		{"etcd://[::1]:2379/a/b-c_d.e/", store.URL{Scheme: "etcd", Endpoints: []string{"[::1]:2379"}, Prefix: "/a/b-c_d.e"}},
		{"pebble:///var/lib/slicer", store.URL{Scheme: "pebble", Dir: "/var/lib/slicer"}},
		{"pebble:///var/../tmp//x/", store.URL{Scheme: "pebble", Dir: "/tmp/x"}},
	} {
		got, err := store.ParseURL(c.in)
		if err != nil || cmp.Diff(c.want, got) != "" {
			t.Errorf("%s: %+v, %v; want %+v", c.in, got, err, c.want)
			continue
		}
		if again, err := store.ParseURL(got.String()); err != nil || cmp.Diff(got, again) != "" {
			t.Errorf("%s printed as %s reads as %+v, %v", c.in, got, again, err)
		}
	}
	for _, in := range []string{
		"", "etcd", "etcd:", "http://h:1/p", "etcd://", "etcd:///p", "etcd://h/p", "etcd://h:0/p", "etcd://h:65536/p", "etcd://h:1,/p",
		"etcd://u@h:1/p", "etcd://h:1/p q", "etcd://h:1//p", "etcd://h:1/p//q", "etcd://h:1/../p", "etcd://h:1/p?x=1", "etcd://h:1/" + strings.Repeat("p", 255),
		"pebble://", "pebble:///", "pebble://dir", "pebble://h/dir", "pebble:///..", "pebble:///a\x00b",
	} {
		_, err := store.ParseURL(in)
		var field *assignment.FieldError
		if !errors.As(err, &field) {
			t.Errorf("%q: error %v, want a field error", in, err)
		}
	}
}

func TestCandidateValidate(t *testing.T) {
	good := store.Candidate{ID: "a-1", Address: "h:1", Zone: "eu"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, c := range []store.Candidate{
		{}, {ID: "a"}, {Address: "h:1"}, {ID: "a/b", Address: "h:1"}, {ID: "a b", Address: "h:1"}, {ID: "ä", Address: "h:1"},
		{ID: strings.Repeat("a", 254), Address: "h:1"}, {ID: "a", Address: "h:1", Zone: strings.Repeat("z", 64)},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v is allowed", c)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"etcd://h1:2379,h2:2379/prefix", "pebble:///d", "etcd://[::1]:1", "://", "etcd://h:1/%2f"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := store.ParseURL(s)
		if err != nil {
			return
		}
		if again, err := store.ParseURL(u.String()); err != nil || cmp.Diff(u, again) != "" {
			t.Errorf("%q reads as %+v, which prints as %q and reads as %+v, %v", s, u, u, again, err)
		}
	})
}
