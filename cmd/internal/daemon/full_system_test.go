//go:build system

package daemon_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestFullDiskAtStart starts "slicer serve" on disks that are full but for a few
// pages, with a store that is new and with one whose process was killed: each time it
// serves, or ends with exit code 1 and one error that names the directory and the
// cause. With room again it has forgotten nothing. It needs root, to mount them.
func TestFullDiskAtStart(t *testing.T) {
	const page = 4096
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4m,mode=700"); err != nil {
		t.Fatalf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	const jobs = 20
	killed := filepath.Join(t.TempDir(), "killed")
	p := runtest.Start(t, "serve", serveArgs(killed)...)
	w := p.Where()
	becomesReady(t, w["http"])
	for i := range jobs {
		if _, err := admin(t, w["listen"]).PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: fmt.Sprint("job", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	p.Signal(syscall.SIGKILL)
	p.End()

	ended := 0
	dir, filler := filepath.Join(disk, "store"), filepath.Join(disk, "filler")
	for _, old := range []string{"", killed} {
		for free := range int64(10) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if old != "" {
				if err := os.CopyFS(dir, os.DirFS(old)); err != nil {
					t.Fatal(err)
				}
			}
			fill(t, filler, free*page)
			p := runtest.Start(t, "serve", serveArgs(dir)...)
			serves := p.Serves()
			if serves {
				p.Signal(syscall.SIGTERM) // it may find out now only
			}
			if code, text := p.End(), p.Text(); code != 0 || !serves {
				last := text[strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1:]
				if code != 1 || !strings.HasPrefix(last, "serve: ") || !strings.Contains(last, dir) || !strings.Contains(last, "no space left on device") {
					t.Errorf("with %d pages: exit %d\n%s", free, code, text)
				}
				ended++
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
			if old == "" {
				continue
			}
			p = runtest.Start(t, "serve", serveArgs(dir)...)
			w := p.Where()
			becomesReady(t, w["http"])
			if list, err := admin(t, w["listen"]).ListJobs(ctx, &slicerv1.ListJobsRequest{}); err != nil || len(list.Jobs) != jobs {
				t.Errorf("after %d pages: %d jobs, %v", free, len(list.GetJobs()), err)
			}
			p.Stop(syscall.SIGTERM)
		}
	}
	if ended < 4 {
		t.Errorf("the disk was too full for %d starts only", ended)
	}
}

// fill leaves so many bytes of a file's disk free.
func fill(t *testing.T, file string, free int64) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n, err := io.Copy(f, zeros{})
	if err == nil || n < free {
		t.Fatalf("the disk takes %d bytes: %v", n, err)
	}
	if err := f.Truncate(n - free); err != nil {
		t.Fatal(err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
