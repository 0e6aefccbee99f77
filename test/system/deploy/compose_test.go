package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{path("compose", "compose.yaml")}, cli.WithProfiles([]string{"*"}), cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckContainerNameUnicity(); err != nil {
		t.Error(err)
	}
	count := map[string]int{}
	for name, s := range p.Services {
		part, _, _ := strings.Cut(name, "-")
		count[part]++
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || len(s.SecurityOpt) == 0 || s.Privileged {
			t.Errorf("%s is not confined", name)
		}
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) < 20*time.Second {
			t.Errorf("%s is killed %v after SIGTERM", name, s.StopGracePeriod)
		}
		if port := httpPorts[part]; port != 0 && !slices.Contains(s.Command, fmt.Sprintf("--http=:%d", port)) {
			t.Errorf("%s keeps --http to its container", name)
		}
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s of the host is open to others", name, port.Published)
			}
		}
		if s.Build == nil || !strings.Contains(read(t, "Containerfile"), "FROM scratch AS "+s.Build.Target+"\n") {
			t.Errorf("%s is not built from deploy/Containerfile: %+v", name, s.Build)
		}
		if part == "etcd" {
			etcdOfCompose(t, p, s)
		}
	}
	for part, n := range map[string]int{"etcd": 3, "assigner": 3, "distributor": 2, "backupdist": 1, "greeter": 3, "job": 1, "client": 1, "slicerctl": 1} {
		if count[part] != n {
			t.Errorf("%d of %s, not %d", count[part], part, n)
		}
	}
	tasks := map[string]bool{}
	for name, s := range p.Services {
		if task := s.Environment["SLICER_TASK"]; task != nil {
			if tasks[*task] || *task != name || *s.Environment["SLICER_ADDRESS"] != name+":50051" {
				t.Errorf("%s is the task %s at %s", name, *task, *s.Environment["SLICER_ADDRESS"])
			}
			tasks[*task] = true
		}
	}
}

// etcdOfCompose: each member goes by its own name, compacts, has a quota and a volume.
func etcdOfCompose(t *testing.T, p *types.Project, s types.ServiceConfig) {
	t.Helper()
	for _, want := range []string{"--name=" + s.Name, "--advertise-client-urls=http://" + s.Name + ":2379", "--initial-advertise-peer-urls=http://" + s.Name + ":2380", "--auto-compaction-mode=periodic"} {
		if !slices.Contains(s.Command, want) {
			t.Errorf("%s has no %s", s.Name, want)
		}
	}
	if !slices.ContainsFunc(s.Command, func(a string) bool { return strings.HasPrefix(a, "--quota-backend-bytes=") }) {
		t.Errorf("%s has no quota", s.Name)
	}
	if len(s.Volumes) != 1 || s.Volumes[0].Source != s.Name {
		t.Errorf("%s has the volumes %v", s.Name, s.Volumes)
	}
	if _, ok := p.Volumes[s.Name]; !ok {
		t.Errorf("there is no volume %s", s.Name)
	}
}
