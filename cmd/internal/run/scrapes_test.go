package run_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// large is a collector whose metrics no socket buffers hold. It counts how many
// scrapes have begun.
type large struct{ begun atomic.Int64 }

func (*large) Describe(chan<- *prometheus.Desc) {}

func (l *large) Collect(c chan<- prometheus.Metric) {
	l.begun.Add(1)
	name := strings.Repeat("x", 1000)
	for i := range 6_000 {
		c <- prometheus.MustNewConstMetric(prometheus.NewDesc("large", "help", nil, prometheus.Labels{"name": fmt.Sprint(name, i)}), prometheus.GaugeValue, 1)
	}
}

// from gets a URL from an address of this machine.
func from(t *testing.T, address, url string) (code int, body string) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: d.DialContext}, Timeout: time.Minute}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Scrapes that are asked for and not read hold the memory of a few, however many ask and
// however often; the same address is told so, and others are served.
func TestUnreadScrapes(t *testing.T) {
	reg := prometheus.NewRegistry()
	l := &large{}
	reg.MustRegister(l)
	s, err := run.NewStatus("127.0.0.1:0", reg, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := l.begun.Load() // registering collects, too
	refused := make(chan string, 30)
	for range 30 {
		c, err := net.Dial("tcp", s.Where())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
		go func() {
			line, _ := bufio.NewReaderSize(c, 16).ReadString('\n')
			refused <- line
		}()
	}
	for range 26 { // those that are served read no more than their first line
		if line := <-refused; !strings.Contains(line, "503") && !strings.Contains(line, "200") {
			t.Fatalf("an answer begins with %q", line)
		}
	}
	if n := l.begun.Load() - before; n > 4 {
		t.Errorf("%d scrapes have begun, not 4", n)
	}
	if code, body := from(t, "127.0.0.1", "http://"+s.Where()+"/metrics"); code != 503 || !strings.Contains(body, "at most 32, and 4 from one address") {
		t.Errorf("one more from the same address: %d %.100q", code, body)
	}
	if code, body := from(t, "127.0.0.1", "http://"+s.Where()+"/healthz"); code != 200 {
		t.Errorf("/healthz: %d %.100q", code, body)
	}
	if code, body := from(t, "127.0.0.2", "http://"+s.Where()+"/metrics"); code != 200 || len(body) < 6_000_000 {
		t.Errorf("from another address: %d %.100q", code, body)
	}
}
