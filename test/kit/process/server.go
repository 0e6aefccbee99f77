package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/cputest"
)

// Server is a process that serves, and says where.
type Server struct {
	Addr string
	Pid  int
}

// Serve runs a program until the test ends, and waits until where finds its address in a line of
// what it says.
func Serve(tb testing.TB, cmd *exec.Cmd, where func(line string) string) Server {
	tb.Helper()
	in, err := cmd.StdinPipe() // whose end, by our own too, ends it
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	found, done := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(done)
		defer close(found)
		sent := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if at := where(lines.Text()); at != "" && !sent {
				found <- at
				sent = true
			} else if !sent {
				tb.Log(lines.Text())
			}
		}
	}()
	tb.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-done
		_ = cmd.Wait()
	})
	s := Server{<-found, cmd.Process.Pid}
	if s.Addr == "" {
		tb.Fatalf("%v does not serve", cmd.Args)
	}
	return s
}

// Listens finds where one of our programs listens in what it logs as JSON.
func Listens(line string) string {
	var m struct{ Msg, Listen string }
	if json.Unmarshal([]byte(line), &m) != nil || m.Msg != "serving" {
		return ""
	}
	return m.Listen
}

// roleEnv is the role that the test binary has as another program.
const roleEnv = "SLICER_TEST_ROLE"

// Role is that of this process, empty for the test.
func Role() string { return os.Getenv(roleEnv) }

// ServeRole runs the test binary in a role, with more in its environment. It calls ServeHTTP.
func ServeRole(tb testing.TB, role string, env ...string) Server {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append(env, roleEnv+"="+role)...)
	return Serve(tb, cmd, func(line string) string { return line })
}

// ServeHTTP prints where it listens and serves until standard input ends.
func ServeHTTP(lis net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		srv.Close()
	}()
	fmt.Println(lis.Addr())
	if err := srv.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// CPU is what it has used.
func (s Server) CPU(tb testing.TB) time.Duration {
	tb.Helper()
	used, err := cputest.Of(s.Pid)
	if err != nil {
		tb.Fatal(err)
	}
	return used
}

// Ask has so many clients send requests for a while, one after the other, each for a user of its own
// as forUser changes them, and returns how many were answered, in all and a second. All must be by code 200 with
// a body of so many bytes.
func (s Server) Ask(tb testing.TB, clients int, d time.Duration, body int64, forUser func(r *http.Request, user string)) (n int64, rate float64) {
	tb.Helper()
	tr := &http.Transport{MaxIdleConnsPerHost: 2 * clients}
	defer tr.CloseIdleConnections()
	var answered, failed atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for c := range clients {
		all.Go(func() {
			for i := 0; time.Since(began) < d; i++ {
				r, err := http.NewRequest("GET", "http://"+s.Addr+"/profile", nil)
				if err != nil {
					failed.Add(1)
					return
				}
				forUser(r, fmt.Sprint("user/", c, "/", i%1000))
				resp, err := tr.RoundTrip(r)
				if err != nil {
					failed.Add(1)
					continue
				}
				if m, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || m != body {
					failed.Add(1)
				}
				resp.Body.Close()
				answered.Add(1)
			}
		})
	}
	all.Wait()
	if failed.Load() > 0 {
		tb.Errorf("%d requests failed", failed.Load())
	}
	return answered.Load(), float64(answered.Load()) / time.Since(began).Seconds()
}
