package page_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"

	"github.com/slicer-project/slicer/assignment/access/accesstest"
	"github.com/slicer-project/slicer/assignment/store/etcdstore/etcdtest"
	"github.com/slicer-project/slicer/cmd/internal/run/runtest"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// TestPolicyOfProcesses: an assigner and a Distributor with a policy show their pages to a
// certificate that may read a job, to this machine, and to no other. The Distributor reads for
// its viewers under its own identity, by way of the assigner.
func TestPolicyOfProcesses(t *testing.T) {
	t.Parallel()
	etcd := "--store=etcd://" + etcdtest.NewCluster(t, 1).Endpoints()[0]
	authority := accesstest.New(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(policy, []byte(policyText), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := func(id string, more ...string) []string {
		f := authority.Files("spiffe://corp/slicer/" + id)
		return append(more, "--id="+id, "--listen=127.0.0.1:0", "--http=127.0.0.1:0", "--http-tls=mutual", "--policy="+policy, "--tls-cert="+f.Cert, "--tls-key="+f.Key, "--tls-ca="+f.CA)
	}
	a := runtest.Start(t, "assigner", flags("a1", etcd)...).Where()
	d := runtest.Start(t, "distributor", flags("d1", "--assigners="+a["listen"])...).Where()
	f := authority.ClientTLS(accesstest.Nobody)
	f.ServerName = "127.0.0.1"
	readyWith(t, &http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: f}}, "https://"+d["http"])
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	conn, err := grpc.NewClient(d["listen"], grpc.WithTransportCredentials(authority.Client("spiffe://corp/sre/ann")))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, job := range []string{"cache", "ledger"} {
		if _, err := slicerv1.NewAdminServiceClient(conn).PutJob(ctx, &slicerv1.PutJobRequest{Config: &slicerv1.JobConfig{Name: job}, Who: "ann"}, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range map[string]string{"assigner": a["http"], "distributor": d["http"]} {
		client := func(id string) *http.Client {
			cfg := authority.ClientTLS(id)
			cfg.ServerName = "127.0.0.1" // which the certificates are for
			return &http.Client{Timeout: limit, Transport: farAway{&http.Transport{DisableKeepAlives: true, TLSClientConfig: cfg}}}
		}
		resp, err := client(accesstest.Nobody).Get("https://" + at + "/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d without a certificate, by another name than localhost", name, resp.StatusCode)
		}
		s := watchWith(t, client("spiffe://corp/cache/dev"), "https://"+at+"/events")
		until(s, "jobs", func(v *overview) bool {
			return len(v.Jobs) == 1 && v.Jobs[0].Name == "cache" && v.Jobs[0].State == "empty"
		})
		s = watchWith(t, client("spiffe://corp/cache/dev"), "https://"+at+"/events?job=cache")
		until(s, "state", func(v *state) bool { return v.State == "empty" })
		if s := watchWith(t, client("spiffe://corp/cache/dev"), "https://"+at+"/events?job=ledger"); s.code != http.StatusForbidden {
			t.Errorf("%s: another's job: %d %s", name, s.code, s.body)
		}
	}
}

// Without a policy, --http-tls mutual shows the page to what has a certificate alone, as it
// does /metrics.
func TestMutualWithoutPolicy(t *testing.T) {
	t.Parallel()
	authority := accesstest.New(t)
	f := authority.Files("spiffe://corp/slicer/s")
	w := runtest.Start(t, "serve", "--store=pebble://"+t.TempDir(), "--listen=127.0.0.1:0", "--backup-listen=127.0.0.1:0", "--http=127.0.0.1:0", "--http-tls=mutual", "--tls-cert="+f.Cert, "--tls-key="+f.Key, "--tls-ca="+f.CA).Where()
	for id, want := range map[string]int{accesstest.Nobody: http.StatusForbidden, "spiffe://corp/anyone": http.StatusOK} {
		client := &http.Client{Timeout: limit, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: authority.ClientTLS(id)}}
		for _, path := range []string{"/", "/job.js", "/page.css", "/metrics"} {
			resp, err := client.Get("https://" + w["http"] + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s as %q: %d, want %d", path, id, resp.StatusCode, want)
			}
		}
	}
}

// farAway asks as a browser of another machine does: for the host by its name there. All that the
// test has are this machine's addresses; TestPolicy has others.
type farAway struct{ *http.Transport }

func (f farAway) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Host = "slicer.example.com"
	return f.Transport.RoundTrip(r)
}
