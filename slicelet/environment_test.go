package slicelet

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/assignment"
)

func TestTaskFromEnvironment(t *testing.T) {
	pod := map[string]string{"POD_NAME": "cache-3", "POD_IP": "10.1.2.3"}
	set := map[string]string{"SLICER_TASK": "eu.cache-3", "SLICER_ADDRESS": "cache-3.example:32001"}
	both := maps.Clone(pod)
	maps.Copy(both, set)
	for _, c := range []struct {
		env                  map[string]string
		task, address        string // of the config
		wantTask, wantDialed string
		field                string // of the error
	}{
		{env: pod, address: "[::]:8080", wantTask: "cache-3", wantDialed: "10.1.2.3:8080"},
		{env: pod, address: "0.0.0.0:8080", wantTask: "cache-3", wantDialed: "10.1.2.3:8080"},
		{env: pod, address: ":8080", wantTask: "cache-3", wantDialed: "10.1.2.3:8080"},
		{env: map[string]string{"POD_IP": "fd00::7"}, task: "t", address: ":8080", wantTask: "t", wantDialed: "[fd00::7]:8080"},
		{env: set, wantTask: "eu.cache-3", wantDialed: "cache-3.example:32001"},
		{env: both, address: ":8080", wantTask: "eu.cache-3", wantDialed: "cache-3.example:32001"},
		// What the config says stays.
		{env: both, task: "mine", address: "127.0.0.1:8080", wantTask: "mine", wantDialed: "127.0.0.1:8080"},
		{env: both, task: "mine", address: "web.example:8080", wantTask: "mine", wantDialed: "web.example:8080"},
		{env: pod, task: "mine", field: "task address"},
		{env: pod, address: ":0", field: "task address"},
		{env: pod, address: "no port", field: "task address"},
		{address: "127.0.0.1:8080", field: "task name"},
		{task: "t", address: ":8080", field: "task address"},
		{env: map[string]string{"SLICER_TASK": "a b"}, address: "h:1", field: "SLICER_TASK"},
		{env: map[string]string{"POD_NAME": strings.Repeat("n", 254)}, address: "h:1", field: "POD_NAME"},
		{env: map[string]string{"SLICER_ADDRESS": ":8080"}, task: "t", field: "SLICER_ADDRESS"},
		{env: map[string]string{"SLICER_ADDRESS": "web.example"}, task: "t", field: "SLICER_ADDRESS"},
		{env: map[string]string{"SLICER_ADDRESS": "web.example:0"}, task: "t", field: "SLICER_ADDRESS"},
		{env: map[string]string{"POD_IP": "web.example"}, task: "t", address: ":1", field: "POD_IP"},
		{env: map[string]string{"POD_IP": "::"}, task: "t", address: ":1", field: "POD_IP"},
	} {
		for _, name := range []string{envTask, envPodName, envAddress, envPodIP} {
			t.Setenv(name, c.env[name])
		}
		s, err := New(Config{Job: "job", Task: c.task, Address: c.address, Distributors: []string{"127.0.0.1:1"}})
		var refused *assignment.FieldError
		switch {
		case errors.As(err, &refused):
			if refused.Field != c.field {
				t.Errorf("%v, task %q, address %q: %v", c.env, c.task, c.address, err)
			}
		case err != nil:
			t.Errorf("%v, task %q, address %q: %v", c.env, c.task, c.address, err)
		default:
			if got := []string{s.me.Name, s.me.Address, ""}; !slices.Equal(got, []string{c.wantTask, c.wantDialed, c.field}) {
				t.Errorf("%v, task %q, address %q: %q", c.env, c.task, c.address, got)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
