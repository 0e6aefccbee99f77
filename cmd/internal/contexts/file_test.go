package contexts

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func add1(c *Config) (bool, error) { return true, c.Set("a", Context{Server: "a:1"}) }

func TestUpdate(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "config.yaml")
	if err := Update(t.Context(), path, add1); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil || c.Contexts["a"].Server != "a:1" {
		t.Fatalf("%+v, %v", c, err)
	}
	// One that others could read is not afterwards, also through a link.
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.yaml")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if err := Update(t.Context(), link, func(c *Config) (bool, error) { return c.Use("a"), nil }); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	before, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(before), "current: a") {
		t.Fatalf("%s, %v", before, err)
	}

	// What fails, or has nothing to write, leaves the file as it was and nothing beside it.
	bad := errors.New("bad")
	for want, change := range map[error]func(*Config) (bool, error){
		bad: func(c *Config) (bool, error) { c.Delete("a"); return true, bad },
		nil: func(c *Config) (bool, error) { c.Delete("a"); return false, nil },
	} {
		if err := Update(t.Context(), path, change); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	// One that another holds.
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Update(ctx, path, add1); err == nil || !strings.Contains(err.Error(), path+".lock is there: another slicerctl is changing "+path) {
		t.Errorf("locked: %v", err)
	}
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(after) != string(before) {
		t.Errorf("%s, %v; want %s", after, err, before)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestLoadRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := Load(dir); err == nil || err.Error() != dir+": a folder is not allowed: want a regular file" {
		t.Errorf("a folder: %v", err)
	}
	pipe := filepath.Join(dir, "pipe") // with no writer, so that a reader would wait
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(pipe); err == nil || err.Error() != pipe+": a pipe, socket or device is not allowed: want a regular file" {
		t.Errorf("a pipe: %v", err)
	}
	large := filepath.Join(dir, "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, 1<<40); err != nil { // sparse
		t.Fatal(err)
	}
	if _, err := Load(large); err == nil || err.Error() != large+": 1048577 bytes, at most 1048576 are allowed" {
		t.Errorf("a large one: %v", err)
	}
	for path, err := range map[string]error{large: Update(t.Context(), large, add1), dir: Update(t.Context(), dir, add1)} {
		if err == nil {
			t.Errorf("%s is replaced", path)
		}
	}
}
