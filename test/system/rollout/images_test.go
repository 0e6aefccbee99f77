//go:build system

package rollout

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

var images = flag.Bool("images", false, "build the images of deploy/Containerfile with buildah (as root, with busybox), which takes minutes")

// inside are the programs of each image, and what each prints of itself.
var inside = map[string]map[string][]string{
	"slicer": {
		"assigner": {"--version"}, "distributor": {"--version"}, "backupdist": {"--version"}, "slicer": {"serve", "--help"},
		"slicerctl": {"--version"}, "slicerproxy": {"--version"},
	},
	"etcd":    {"etcd": {"--version"}},
	"greeter": {"server": {"-h"}, "client": {"-h"}},
}

// TestImages builds each target of the Containerfile, on an image made of this machine's Go and
// busybox, without a network, and runs what it holds: static programs and nothing else.
func TestImages(t *testing.T) {
	if !*images {
		t.Skip("-images is not given")
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal("busybox is not installed: apt-get install busybox-static")
	}
	b := &buildah{T: t, dir: t.TempDir()}
	b.toolchain(busybox)
	for _, target := range []string{"slicer", "etcd", "greeter"} {
		b.run("bud", "--isolation=chroot", "--file=deploy/Containerfile", "--target="+target, "--tag="+target,
			"--build-arg=GO_IMAGE=localhost/toolchain", "--pull-never",
			"--volume="+b.cache+":/cache", "--volume="+goEnv(t, "GOMODCACHE")+":/modules", "../../..")
		b.image(target)
	}
}

// buildah is a store of images of the test's own.
type buildah struct {
	*testing.T
	dir   string
	cache string // Go's, for all builds
}

func (b *buildah) run(args ...string) string {
	b.Helper()
	argv := append([]string{"--storage-driver=vfs", "--root=" + filepath.Join(b.dir, "root"), "--runroot=" + filepath.Join(b.dir, "run")}, args...)
	cmd := exec.CommandContext(b.Context(), "buildah", argv...)
	if args[0] == "bud" { // its files and context are relative to the top
		cmd.Dir = filepath.Join("..", "..", "..")
		cmd.Args[len(cmd.Args)-1] = "."
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("buildah %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// toolchain makes the image that the others are built in.
func (b *buildah) toolchain(busybox string) {
	b.Helper()
	b.cache = filepath.Join(b.dir, "cache")
	bin := filepath.Join(b.dir, "bin")
	for _, d := range []string{b.cache, bin} {
		if err := os.Mkdir(d, 0o755); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "mkdir"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			b.Fatal(err)
		}
	}
	c := b.run("from", "scratch")
	b.run("copy", c, bin, "/bin")
	b.run("copy", c, busybox, "/bin/busybox")
	b.run("copy", c, goEnv(b.T, "GOROOT"), "/usr/local/go")
	b.run("copy", c, b.cache, "/tmp")
	b.run("config", "--env=PATH=/usr/local/go/bin:/bin", "--env=GOPROXY=off", "--env=GOTOOLCHAIN=local", "--env=GOCACHE=/cache", "--env=GOMODCACHE=/modules", "--env=GOMAXPROCS=2", c)
	b.run("commit", "--rm", c, "localhost/toolchain")
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// image looks at what an image holds, and starts each program in it, as its user.
func (b *buildah) image(target string) {
	b.Helper()
	var config struct {
		OCIv1 struct{ Config struct{ User string } }
	}
	if err := json.Unmarshal([]byte(b.run("inspect", "--type=image", target)), &config); err != nil {
		b.Fatal(err)
	}
	if config.OCIv1.Config.User != "65532:65532" {
		b.Errorf("%s runs as %q", target, config.OCIv1.Config.User)
	}
	c := b.run("from", "--pull-never", "localhost/"+target)
	defer b.run("rm", c)
	root := b.run("mount", c)
	defer b.run("umount", c)
	var found []string
	size := int64(0)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		found = append(found, rel)
		info, err := d.Info()
		if err != nil {
			return err
		}
		size += info.Size()
		return static(path)
	})
	if err != nil {
		b.Errorf("%s: %v", target, err)
	}
	var want []string
	for program := range inside[target] {
		want = append(want, "bin/"+program)
	}
	if slices.Sort(want); !slices.Equal(found, want) {
		b.Errorf("%s holds %v, want %v", target, found, want)
	}
	for program, args := range inside[target] {
		out, err := exec.CommandContext(b.Context(), "chroot", append([]string{"--userspec=65532:65532", root, "/bin/" + program}, args...)...).CombinedOutput()
		if err != nil || !regexp.MustCompile(`(?i)version|`+runtime.Version()+`|flags|Usage`).Match(out) {
			b.Errorf("%s of %s: %v\n%s", program, target, err, out)
		}
	}
	b.Logf("%s: %d MB, %v", target, size>>20, found)
}

// static reports a program that asks for a loader or for libraries.
func static(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			return &os.PathError{Op: "link statically", Path: path, Err: os.ErrInvalid}
		}
	}
	return nil
}
