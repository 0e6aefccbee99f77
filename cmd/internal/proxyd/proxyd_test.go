package proxyd_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/assignment/certs"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/cmd/internal/proxyd"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	"github.com/slicer-project/slicer/distributor"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
	"github.com/slicer-project/slicer/test/kit/bed"
)

// startTask serves HTTP as a task of job web until the test ends: it answers with
// its name and whether the key is its own. A request for /slow calls slow.
func startTask(t *testing.T, name string, distributors []string, slow func(), serving *tls.Config, dial ...grpc.DialOption) {
	t.Helper()
	lis := bed.Listen(t)
	s, err := slicelet.New(slicelet.Config{Job: "web", Task: name, Address: lis.Addr().String(), Distributors: distributors, DialOptions: dial})
	if err != nil {
		t.Fatal(err)
	}
	h, err := slicelethttp.Handler(s, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			slow()
		}
		key, ok := slicelethttp.HandleFrom(r.Context())
		fmt.Fprintf(w, "%s %v %v", name, ok, key.Owned())
	}), slicelethttp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, TLSConfig: serving}
	done := make(chan error, 1)
	go func() {
		if serving != nil {
			done <- srv.ServeTLS(lis, "", "")
		} else {
			done <- srv.Serve(lis)
		}
	}()
	bed.CloseAtEnd(t, func() error {
		err := errors.Join(srv.Close(), s.Close())
		<-done
		return err
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ask returns code and body, 0 if there is no answer.
func ask(client *http.Client, url string, headers ...string) (int, string) {
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		return 0, err.Error()
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(body)
}

// TestServe runs slicerproxy as a process before two tasks of a real control
// plane: it routes, reads its rules again, keeps the old ones when the new are
// bad, and ends the requests that it has.
func TestServe(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	plane := bed.Start(t, bed.Config{})
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	inside, release := make(chan struct{}), make(chan struct{})
	slow := func() {
		close(inside)
		<-release
	}
	for _, name := range []string{"web-0", "web-1"} {
		startTask(t, name, plane.Addrs(), slow, nil)
	}
	ck, err := clerk.New(clerk.Config{Job: "web", Distributors: plane.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	owned(t, ck, 2)
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules.yaml")
	write(t, rules, "rules:\n- job: web\n  key: {header: X-User}\n")
	p := runtest.Start(t, "slicerproxy", "--config="+rules, "--distributors="+strings.Join(plane.Addrs(), ","), "--cache-dir="+filepath.Join(dir, "made", "by", "it"),
		"--listen=127.0.0.1:0", "--http=127.0.0.1:0")
	w := p.Where()
	url, status := "http://"+w["listen"], "http://"+w["http"]
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: limit}
	eventually(t, "ready", func() bool { code, _ := ask(client, status+"/readyz"); return code == 200 })
	routed := func(header string) {
		t.Helper()
		tasks := map[string]int{}
		for i := range 20 {
			key := fmt.Sprint("user ", i)
			code, body := ask(client, url+"/", header+": "+key)
			name, rest, _ := strings.Cut(body, " ")
			if code != 200 || rest != "true true" {
				t.Errorf("%s: %d %s", key, code, body)
			}
			if want := ck.Lookup(key).At(0).Name; name != want {
				t.Errorf("%s went to %s, want %s", key, name, want)
			}
			tasks[name]++
		}
		if len(tasks) != 2 {
			t.Errorf("only %v were asked", tasks)
		}
	}
	routed("X-User")
	metric := func(line string) func() bool {
		return func() bool {
			_, body := ask(client, status+"/metrics")
			return strings.Contains(body, line)
		}
	}
	eventually(t, "requests are counted", metric(`slicer_proxy_requests_total{job="web",result="2xx"} 20`))

	write(t, rules, "rules:\n- job: web\n  key: {heade: X-Other}\n")
	p.Signal(syscall.SIGHUP)
	eventually(t, "bad rules are refused", metric(`slicer_proxy_reloads_total{result="refused"} 1`))
	eventually(t, "the log says why", func() bool {
		return strings.Contains(strings.ReplaceAll(p.Text(), `\\\"`, `\"`), `rules.yaml:3: field of key: \"heade\" is not allowed`)
	})
	routed("X-User")
	write(t, rules, "rules:\n- job: web\n  key: {header: X-Other}\n")
	p.Signal(syscall.SIGHUP)
	eventually(t, "good rules are in force", metric(`slicer_proxy_reloads_total{result="loaded"} 1`))
	routed("X-Other")

	answer := make(chan string)
	go func() {
		code, body := ask(client, url+"/slow", "X-Other: a")
		answer <- fmt.Sprint(code, " ", body)
	}()
	<-inside
	p.Signal(syscall.SIGTERM)
	eventually(t, "it takes no more requests", func() bool {
		code, _ := ask(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, url)
		return code == 0
	})
	close(release)
	if got := <-answer; !strings.HasPrefix(got, "200 web-") {
		t.Errorf("the request on its way: %s", got)
	}
	if code := p.End(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.Text())
	}
	if kept, err := filepath.Glob(filepath.Join(dir, "made", "by", "it", "web.assignment")); err != nil || len(kept) != 1 {
		t.Errorf("the cache holds %v, %v", kept, err)
	}
}

func certificate(authority *runtest.Authority, name string) run.TLS {
	cert, key := authority.Issue(name)
	return run.TLS{Cert: cert, Key: key, CA: authority.CA}
}

// source reads the files of a task.
func source(t *testing.T, of run.TLS) *certs.Source {
	t.Helper()
	s, err := certs.New(certs.Config{Cert: of.Cert, Key: of.Key, CA: of.CA})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tlsDistributor starts a Distributor that speaks TLS and returns its address.
func tlsDistributor(t *testing.T, plane *bed.Plane, mine run.TLS) string {
	t.Helper()
	creds, err := mine.Server()
	if err != nil {
		t.Fatal(err)
	}
	d, err := distributor.New(distributor.Config{ID: "tls", Assigners: []string{plane.Assigners[0].Addr}})
	if err != nil {
		t.Fatal(err)
	}
	lis := bed.Listen(t)
	bed.Serve(t, lis, d.Register, d.Close, append(distributor.ServerOptions(), grpc.Creds(creds))...)
	return lis.Addr().String()
}

// TestTLS: all speak TLS with one another: HTTP/2 clients that show no certificate, the
// Distributor and the tasks.
func TestTLS(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	authority := runtest.NewAuthority(t, "ours")
	plane := bed.Start(t, bed.Config{})
	if err := plane.PutJob(ctx, assignment.JobConfig{Name: "web"}); err != nil {
		t.Fatal(err)
	}
	distributors := []string{tlsDistributor(t, plane, certificate(authority, "distributor"))}
	task := source(t, certificate(authority, "task"))
	startTask(t, "web-0", distributors, nil, task.ServerConfig(tls.RequireAndVerifyClientCert, "h2", "http/1.1"), task.DialOptions()...)

	rules := filepath.Join(t.TempDir(), "rules.yaml")
	write(t, rules, "rules:\n- job: web\n  upstream: https\n  key: {header: X-User}\n")
	shown := certificate(authority, "proxy")
	p := runtest.Start(t, "slicerproxy", "--config="+rules, "--distributors="+distributors[0], "--listen=127.0.0.1:0", "--http=127.0.0.1:0",
		"--tls-cert="+shown.Cert, "--tls-key="+shown.Key, "--tls-ca="+shown.CA)
	w := p.Where()
	pool := x509.NewCertPool()
	pem, err := os.ReadFile(authority.CA)
	if err != nil || !pool.AppendCertsFromPEM(pem) {
		t.Fatal("no authority", err)
	}
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr, Timeout: limit}
	eventually(t, "an answer", func() bool {
		code, body := ask(client, "https://"+w["listen"]+"/", "X-User: anna")
		return code == 200 && strings.HasPrefix(body, "web-0 true")
	})
	resp, err := client.Get("https://" + w["listen"] + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Errorf("it speaks %s", resp.Proto)
	}
	p.Signal(syscall.SIGTERM)
	if code := p.End(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.Text())
	}
}

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	good, bad, upstream := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "upstream.yaml")
	write(t, upstream, "rules:\n- {job: web, upstream: h2c}\n")
	write(t, good, "rules:\n- {job: web, path: /a}\n- {job: web}\n- {job: api, host: h}\n")
	write(t, bad, "rules:\n- job: web\n  key:\n  - header: X-User\n  - segment: none\n")
	for _, c := range []struct {
		args      []string
		code      int
		out, errs string
	}{
		{[]string{"--config=" + good, "--check"}, 0, good + ": 3 rules for 2 jobs: api, web\n", ""},
		{[]string{"--config=" + bad, "--check"}, 2, "", "slicerproxy: --config: " + bad + ":5: segment: \"none\" is not allowed: want a whole number\n"},
		{[]string{"--config=" + bad, "--distributors=h:1"}, 2, "", bad + ":5: segment"},
		{[]string{"--config=/no/such", "--check"}, 2, "", "/no/such"},
		{[]string{"--config=" + dir, "--check"}, 2, "", dir},
		{[]string{"--grpc", "--config=" + good, "--check"}, 0, good + ": 3 rules for 2 jobs: api, web\n", ""},
		{[]string{"--grpc", "--config=" + upstream, "--check"}, 2, "", "--config: " + upstream + ": rule 1: upstream: \"h2c\" is not allowed: want none"},
		{[]string{"--grpc", "--config=" + good, "--backups=h:1", "--max-message=0"}, 2, "", "--max-message: 0 is not allowed: want 1 to 1073741824"},
		{[]string{"--grpc", "--config=" + good, "--backups=h:1", "--response-timeout=1s"}, 2, "", "--response-timeout: 1s is not allowed with --grpc"},
		{[]string{"--grpc", "--config=" + good, "--backups=h:1", "--http=", "--log-level=error", "--listen=203.0.113.1:1"}, 1, "", "--listen: listen tcp 203.0.113.1:1"},
		{nil, 2, "", "--config is missing"},
		{[]string{"--config=" + good}, 2, "", "--distributors is missing"},
		{[]string{"--config=" + good, "--distributors=h"}, 2, "", "--distributors: \"h\" is not allowed"},
		{[]string{"--config=" + good, "--backups=:1"}, 2, "", "--backups: \":1\" is not allowed"},
		{[]string{"--config=" + good, "--backups=h:1", "--policy=weighted"}, 2, "", "--policy: \"weighted\" is not allowed"},
		{[]string{"--config=" + good, "--backups=h:1", "--subset=-1"}, 2, "", "--subset: -1 is not allowed"},
		{[]string{"--config=" + good, "--backups=h:1", "--client-index=-2"}, 2, "", "--client-index: -2 is not allowed"},
		{[]string{"--config=" + good, "--backups=h:1", "--max-outstanding=1000001"}, 2, "", "--max-outstanding: 1000001 is not allowed: want 0 to 1000000"},
		{[]string{"--config=" + good, "--backups=h:1", "--patience=2h"}, 2, "", "--patience: 2h0m0s is not allowed"},
		{[]string{"--config=" + good, "--backups=h:1", "--response-timeout=-1s"}, 2, "", "--response-timeout: -1s is not allowed"},
		{[]string{"--config=" + good, "--backups=h:1", "--listen=x"}, 2, "", "--listen: \"x\" is not allowed"},
		{[]string{"--config=" + good, "--backups=h:1", "--tls-key=x"}, 2, "", "--tls-cert: missing"},
		{[]string{"--config=" + good, "--backups=h:1", "--cache-dir=" + good}, 1, "", "--cache-dir: "},
		{[]string{"--config=" + good, "--backups=h:1", "--http=", "--log-level=error", "--listen=203.0.113.1:1"}, 1, "", "--listen: listen tcp 203.0.113.1:1"},
		{[]string{"--config=" + good, "--backups=h:1", "--http=", "--log-level=error", "--tls-cert=/no/c", "--tls-key=/no/k"}, 1, "", "/no/c"},
		{[]string{"more"}, 2, "", "unexpected argument"},
	} {
		code, out, errs := runtest.Execute(proxyd.Command(), c.args...)
		if code != c.code || out != c.out || !strings.Contains(errs, c.errs) || strings.Count(errs, "\n") > 1 {
			t.Errorf("%v: exit %d, %q, %q; want %d, %q, %q", c.args, code, out, errs, c.code, c.out, c.errs)
		}
	}
}
