//go:build system

package proxy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/slicer-project/slicer/test/kit/process"
)

// kinds are scripts' requests by the rule that they are for: %s is a user.
var kinds = []struct{ name, path, header, value string }{
	{"header", "/", "X-User", "%s"},
	{"cookie", "/", "Cookie", "theme=dark; user=%s"},
	{"query", "/profile?page=2&user=%s", "", ""},
	{"segment", "/users/%s/mail", "", ""},
	{"wildcard", "/users/%s/mail", "", ""},
	{"address", "/", "X-Forwarded-For", "10.1.2.%s"},
	{"chain", "/?user=%s", "", ""},
}

var (
	ratePattern = regexp.MustCompile(`Requests/sec:\s+([0-9.]+)`)
	latency     = regexp.MustCompile(`(?m)^\s+99%\s+(\d\S*)`)
)

// wrk runs it with another user in each request, and returns requests a second.
func wrk(t testing.TB, addr, kind, seconds string) (float64, string) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "request.lua")
	for _, k := range kinds {
		if k.name != kind {
			continue
		}
		headers := `["Host"]="` + k.name + `.test"`
		if k.header != "" {
			headers += fmt.Sprintf(`, [%q]=string.format(%q, user)`, k.header, k.value)
		}
		path := fmt.Sprintf("%q", k.path)
		if strings.Contains(k.path, "%s") {
			path = fmt.Sprintf("string.format(%q, user)", k.path)
		}
		text := fmt.Sprintf("request = function()\n  local user = tostring(math.random(0, 255))\n  return wrk.format(\"GET\", %s, {%s})\nend\n", path, headers)
		if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("wrk", "--threads=1", "--connections=32", "--duration="+seconds, "--latency", "--script="+script, "http://"+addr).CombinedOutput()
	if err != nil {
		t.Fatalf("wrk: %v\n%s", err, out)
	}
	text := string(out)
	m := ratePattern.FindStringSubmatch(text)
	if m == nil || strings.Contains(text, "Non-2xx") || strings.Contains(text, "Socket errors") {
		t.Fatalf("wrk of %s says\n%s", kind, text)
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	p99 := ""
	if m := latency.FindStringSubmatch(text); m != nil {
		p99 = m[1]
	}
	return n, p99
}

// TestWrk: each kind of rule sends every request to its key's owner.
func TestWrk(t *testing.T) {
	r := newRig(t)
	before := 0
	for _, k := range kinds {
		n, p99 := wrk(t, r.slicer.Addr, k.name, "1s")
		owned, others, keyless, busy := r.stats(t)
		t.Logf("%-9s %8.0f requests/s, p99 %s", k.name, n, p99)
		if owned == before || others > 0 || keyless > 0 || busy != servers {
			t.Errorf("%s: %d requests to owners, %d to others, %d without a key, %d servers busy", k.name, owned-before, others, keyless, busy)
		}
		before = owned
	}
}

// BenchmarkWrk: slicerproxy serves at least 0.9 of the requests a second of a
// plain proxy.
//
//	go test -tags system -run '^$' -bench Wrk -benchtime 1x ./test/system/proxy
func BenchmarkWrk(b *testing.B) {
	for b.Loop() {
		benchWrk(b)
	}
}

func benchWrk(t *testing.B) {
	r := newRig(t)
	costs := map[string][]float64{}
	slicer, plain, ratio := compare(9, func(s process.Server) float64 {
		used := s.CPU(t)
		n, p99 := wrk(t, s.Addr, "header", "2s")
		cost := float64((s.CPU(t) - used).Microseconds()) / (2 * n)
		costs[s.Addr] = append(costs[s.Addr], cost)
		which := "plain"
		if s == r.slicer {
			which = "slicer"
		}
		t.Logf("%-9s %8.0f requests/s, p99 %s, %.1f us of CPU a request", which, n, p99, cost)
		return n
	}, r)
	t.Logf("CPU of the proxy a request: slicerproxy %.1f us, plain ReverseProxy %.1f us (medians)", median(costs[r.slicer.Addr]), median(costs[r.plain.Addr]))
	t.Logf("slicerproxy %.0f, plain ReverseProxy %.0f requests/s: ratio %.3f (medians)", slicer, plain, ratio)
	t.ReportMetric(ratio, "ratio")
	if ratio < .9 {
		t.Errorf("slicerproxy serves %.3f of the plain proxy's requests a second, want 0.9", ratio)
	}
}
