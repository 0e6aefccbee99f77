//go:build system

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/process"
)

// disk is how large the store's file system is.
const disk = 32 << 20

// TestFullDisk fills the disk under slicer serve, which is a whole Slicer on Pebble: it
// ends, clients notice nothing, and when there is room again nothing that a client held
// is lost.
func TestFullDisk(t *testing.T) {
	process.Build(t, "slicer", "github.com/slicer-project/slicer/cmd/slicer")
	process.Build(t, "slicerctl", "github.com/slicer-project/slicer/cmd/slicerctl")
	b := emptyBed(t, *seedFlag)
	dir := filepath.Join(b.dir, "store")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", disk)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	addrs := b.net.Listen("slicer", 0, 2)
	b.distAddrs, b.backupAddrs = addrs[:1], addrs[1:]
	slicer := b.run("slicer", nil, "slicer", "serve", "--insecure", "--store", "pebble://"+dir+"/db", "--listen", addrs[0], "--backup-listen", addrs[1], "--http=")
	b.apply()
	b.watch = listen(t, addrs[0])
	for i := range 2 {
		b.startServers(i, 3)
	}
	b.settled(time.Minute)
	b.startClients(0, *rateFlag)
	b.calling(*rateFlag)
	ballast := filepath.Join(dir, "ballast")
	b.play([]phase{
		{"baseline on Pebble", func(_ *bed, lasts time.Duration) { time.Sleep(lasts) }},
		{"full disk", func(_ *bed, lasts time.Duration) {
			fill(t, ballast)
			process.Eventually(t, time.Minute, "slicer serve ends", func() error {
				if !slicer.Ended() {
					b.write() // a balanced job writes nothing for long
					return errors.New("it runs")
				}
				return nil
			})
			if words := slicer.LastWords(); slicer.State().ExitCode() != 1 || !strings.Contains(words, syscall.ENOSPC.Error()) {
				t.Errorf("slicer serve: %s, without saying why:\n%s", slicer.State(), words)
			}
			time.Sleep(lasts)
		}},
		{"room again", func(b *bed, lasts time.Duration) {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
			held := b.watch.newest().Generation()
			slicer.Restart()
			process.Eventually(t, time.Minute, "slicer serve is back", func() error {
				r, err := inspect(addrs[0])
				if err == nil && r.Generation < int64(held) {
					t.Fatalf("generation %d is stored, and %d was told", r.Generation, held)
				}
				return err
			})
			time.Sleep(lasts)
		}},
		{"a server dies after that", func(b *bed, lasts time.Duration) { b.killServers(lasts, b.servers[0]) }},
	}, regexp.MustCompile(""))
}

// fill leaves no room on a file system.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// write makes the control plane write some kilobytes, if it still can.
func (b *bed) write() {
	var job strings.Builder
	fmt.Fprintf(&job, "name: other\nlimits:\n  customers:\n")
	for i := range 200 {
		fmt.Fprintf(&job, "    customer-%d-of-those-that-have-a-limit: {rate: %d}\n", i, 1+time.Now().UnixNano()%1000)
	}
	file := filepath.Join(b.dir, "other.yaml")
	if err := os.WriteFile(file, []byte(job.String()), 0o600); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if out, err := exec.CommandContext(ctx, process.Program("slicerctl"), "--server", b.distAddrs[0], "--timeout", "2s", "job", "apply", "-f", file).CombinedOutput(); err != nil {
		b.t.Logf("another job: %v, %s", err, out)
	}
}
