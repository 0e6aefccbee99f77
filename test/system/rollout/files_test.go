//go:build system

package rollout

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/slicer-project/slicer/test/kit/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }

const module = "github.com/slicer-project/slicer/"

// packages of the programs that the files of deploy/ start, by the program's name.
var packages = map[string]string{
	"assigner": "cmd/assigner", "distributor": "cmd/distributor", "backupdist": "cmd/backupdist", "slicer": "cmd/slicer",
	"slicerctl": "cmd/slicerctl", "slicerproxy": "cmd/slicerproxy",
	"server": "test/examples/greeter/server", "client": "test/examples/greeter/client",
}

// build builds a program once.
func build(t *testing.T, program string) string {
	t.Helper()
	pkg := module + packages[program]
	if program == "etcd" {
		pkg = "go.etcd.io/etcd/server/v3"
	} else if packages[program] == "" {
		t.Fatalf("no program is called %q", program)
	}
	process.Build(t, program, pkg)
	return process.Program(program)
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "..", "deploy"}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// object is of a manifest what these tests go by.
type object struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Spec     struct {
		Replicas    int
		ServiceName string `yaml:"serviceName"`
		ClusterIP   string `yaml:"clusterIP"`
		Ports       []struct{ Port int }
		Selector    map[string]any
		Template    struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []container
			}
		}
	}
	Data map[string]string
}

type container struct {
	Name          string
	Command, Args []string
	Env           []struct {
		Name      string
		Value     string
		ValueFrom struct {
			FieldRef struct {
				FieldPath string `yaml:"fieldPath"`
			} `yaml:"fieldRef"`
		} `yaml:"valueFrom"`
	}
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Lifecycle struct {
		PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
	}
}

// program is the name of what a container starts.
func (c *container) program() string { return filepath.Base(c.Command[0]) }

// objects are those of files of deploy/kubernetes.
func objects(t *testing.T, files ...string) (all []object) {
	t.Helper()
	for _, file := range files {
		for dec := yaml.NewDecoder(strings.NewReader(read(t, "kubernetes", file))); ; {
			var o object
			err := dec.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, o)
		}
	}
	return all
}

// runs reports whether a part's pods run for ever.
func (o *object) runs() bool { return o.Kind == "StatefulSet" || o.Kind == "Deployment" }
