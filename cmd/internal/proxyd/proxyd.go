// Package proxyd is the program slicerproxy.
package proxyd

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slicer-project/slicer/assignment/subscriber"
	"github.com/slicer-project/slicer/clerk/clerkgrpc"
	"github.com/slicer-project/slicer/clerk/front"
	"github.com/slicer-project/slicer/clerk/front/rulefile"
	"github.com/slicer-project/slicer/cmd/internal/run"
	"github.com/slicer-project/slicer/loadbalance/policy"
)

// flags are those of the program besides the ones that every server has.
type flags struct {
	run.Flags
	plain, check, grpc    bool
	config, cacheDir      string
	distributors, backups []string
	policy                string
	subset, index         int
	outstanding           int
	patience, headers     time.Duration
	maxMessage            int
}

// Command returns the program, which is the front end of HTTP or gRPC.
func Command() *cobra.Command {
	var f flags
	beside := sidecarFlags{all: &f}
	cmd := &cobra.Command{
		Use:   "slicerproxy --config FILE --distributors HOST:PORT,... [flags]",
		Short: "Send HTTP requests or gRPC to the tasks that own their keys",
		Long: `A reverse proxy. Rules in a YAML file say, by host and path, which job's tasks serve
a request and where its key is: in a header, a cookie, a query parameter, a part of
the path, the client's address, or the first of these that the request has. It
takes HTTP/1.1 and HTTP/2, with TLS or without, and passes streams and WebSockets.

With --grpc it takes gRPC instead, of any service, and passes it on as it is, with
another criticality: sheddable_plus where the rule says none. It is for batch jobs, and
for clients in languages without a library: with "limit" in a rule it is their fuse. Hosts
are :authority, paths are methods, such as /helloworld.Greeter/, and headers are metadata.

On SIGHUP it reads the file again, and its certificate. What is wrong there leaves in
force what was read before. On SIGTERM it ends the requests that it has.

With --upstream it is the sidecar of a server in any language instead, and makes it a task of
a job: what reaches it goes to that server. It counts requests by their keys, takes no keys
while the server does not answer, tells the server which keys come and go, and on SIGTERM,
or POST /drain at --http from this machine, gives the keys up before it ends. Rules only say
where requests have their keys that have not come by slicerproxy. GET /ownership at --http
is a stream of which keys come and go.

With --tls-cert it serves HTTPS, shows that certificate to Distributors and tasks, and
by --tls-ca checks theirs. Its own clients need none, but with --upstream by --tls-ca.`,
		Example: `  slicerproxy --config rules.yaml --check
  slicerproxy --config rules.yaml --distributors slicer-1:4720,slicer-2:4720 --backups slicer-backup:4730
  slicerproxy --grpc --config batch.yaml --distributors slicer-1:4720,slicer-2:4720
  slicerproxy --job web --task web-0 --upstream 127.0.0.1:3000 --distributors slicer-1:4720,slicer-2:4720`,
		Args: run.Args(),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := beside.validateSidecar(cmd); err != nil {
			return err
		}
		if err := f.validate(); err != nil {
			return err
		}
		var rules front.Rules
		if f.config != "" {
			var err error
			if rules, err = readRules(f.config); err != nil {
				return &run.UsageError{Err: fmt.Errorf("--config: %w", err)}
			}
		}
		if f.grpc && f.config != "" {
			if err := rules.Check(clerkgrpc.CheckRule); err != nil {
				return run.Usagef("--config: %s: %w", f.config, err)
			}
		}
		if f.check {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", f.config, summary(rules))
			return err
		}
		if beside.upstream != "" {
			return beside.serve(cmd, rules)
		}
		return serve(cmd, &f, rules)
	}
	f.bind(cmd)
	beside.bind(cmd)
	return cmd
}

func (f *flags) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.config, "config", "", "YAML `file` with the rules; read again on SIGHUP")
	fs.BoolVar(&f.check, "check", false, "only check the rules: exit 2 if they are not in order")
	fs.BoolVar(&f.grpc, "grpc", false, "take gRPC of any service, not HTTP")
	fs.IntVar(&f.maxMessage, "max-message", clerkgrpc.DefaultMaxMessage, "most `bytes` of a message with --grpc, not compressed, in either direction: 1 to 1073741824")
	fs.StringVar(&f.Listen, "listen", ":8080", "`host:port` to serve HTTP on, or gRPC with --grpc, in TLS with --tls-cert; port 0 takes a free one")
	f.BindHTTP(cmd, run.ProxyHTTPPort, " and /debug/pprof/")
	fs.StringSliceVar(&f.distributors, "distributors", nil, "`[zone=]host:port,...` of distributors; those of --zone are taken first, and others while none of them serves")
	fs.StringSliceVar(&f.backups, "backups", nil, "`[zone=]host:port,...` of backup distributors, likewise")
	fs.StringVar(&f.cacheDir, "cache-dir", "", "`directory` to keep the newest assignments in, made if it is missing, to start with when no server answers; empty for none")
	fs.StringVar(&f.policy, "policy", policy.WeightedLeastLoaded.String(), "`kind` of choice among the owners of a key, and for requests without one: weighted_least_loaded, which is least_loaded without --grpc, least_loaded, round_robin, or with --grpc weighted")
	fs.IntVar(&f.subset, "subset", 0, "`number` of tasks of a job to keep connections to; 0 is all")
	fs.IntVar(&f.index, "client-index", -1, "this proxy's `number` among all clients of its jobs, from 0, which its subset is chosen by; with -1 the control plane gives one")
	fs.IntVar(&f.outstanding, "max-outstanding", 0, "`number` of requests that may be under way at a task; where all owners of a key have so many a request is answered by 429, or RESOURCE_EXHAUSTED with --grpc. 0 is any: where requests last long many are under way at a task that has little to do")
	fs.DurationVar(&f.patience, "patience", 10*time.Second, "`time` that a request may wait for a job's first assignment, or in consistent mode without --grpc for the owner of its key: at most 1h")
	fs.DurationVar(&f.headers, "response-timeout", 0, "`time` that a task may take to begin its answer, after which a GET and the like go to another task in affinity mode, as far as the budget for retries (a tenth of the requests) allows; 0 is any; not with --grpc")
	fs.StringVar(&f.Zone, "zone", "", "`zone` that this process runs in, such as a datacenter's name")
	f.BindLog(cmd)
	f.BindTLS(cmd)
	f.TLS.AnyClient = true
	cmd.PersistentFlags().Lookup("tls-ca").Usage = "PEM `file` with the authorities that must have signed the certificates of distributors and tasks; read again when it changes"
	fs.BoolVar(&f.plain, "plain", false, "serve without TLS though there is a --tls-cert")
}

func (f *flags) validate() error {
	if f.check {
		return nil
	}
	if err := f.Flags.Validate(); err != nil {
		return err
	}
	if len(f.distributors)+len(f.backups) == 0 {
		return run.Usagef("--distributors is missing: want host:port of one distributor or more, separated by commas")
	}
	for _, l := range []struct {
		flag  string
		addrs []string
	}{{"--distributors", f.distributors}, {"--backups", f.backups}} {
		for _, a := range l.addrs {
			_, addr := subscriber.SplitServer(a) // the clerk looks at the zone
			if err := run.CheckDialable(l.flag, addr); err != nil {
				return err
			}
		}
	}
	switch kind, err := policy.ParseKind(f.policy); {
	case err != nil || kind == policy.Weighted && !f.grpc:
		return run.Usagef("--policy: %q is not allowed: want %s, %s or %s, or %s with --grpc", f.policy, policy.WeightedLeastLoaded, policy.LeastLoaded, policy.RoundRobin, policy.Weighted)
	case f.grpc && (f.maxMessage < 1 || f.maxMessage > clerkgrpc.MaxMaxMessage):
		return run.Usagef("--max-message: %d is not allowed: want 1 to %d", f.maxMessage, clerkgrpc.MaxMaxMessage)
	case f.grpc && f.headers != 0:
		return run.Usagef("--response-timeout: %s is not allowed with --grpc: RPCs have deadlines, and rules timeouts", f.headers)
	case f.subset < 0 || f.subset > maxNumber:
		return run.Usagef("--subset: %d is not allowed: want 0 to %d", f.subset, maxNumber)
	case f.index < -1 || f.index >= maxNumber:
		return run.Usagef("--client-index: %d is not allowed: want -1 to %d", f.index, maxNumber-1)
	case f.outstanding < 0 || f.outstanding > maxOutstanding:
		return run.Usagef("--max-outstanding: %d is not allowed: want 0 to %d", f.outstanding, maxOutstanding)
	case f.headers < 0:
		return run.Usagef("--response-timeout: %s is not allowed: want 0 or more", f.headers)
	case f.patience <= 0 || f.patience > time.Hour:
		return run.Usagef("--patience: %s is not allowed: want more than 0, at most 1h", f.patience)
	}
	if f.cacheDir != "" {
		if err := os.MkdirAll(f.cacheDir, 0o700); err != nil {
			return fmt.Errorf("--cache-dir: %w", err)
		}
	}
	return nil
}

// maxOutstanding is clerk.Config's.
const maxOutstanding = 1_000_000

// maxNumber bounds sizes and indexes of subsets, as clerk.SubsetConfig does.
const maxNumber = 1 << 24

func readRules(file string) (front.Rules, error) {
	info, err := os.Stat(file)
	if err == nil && info.Size() > rulefile.MaxSize {
		err = fmt.Errorf("%s: %d bytes, at most %d are allowed", file, info.Size(), rulefile.MaxSize)
	}
	if err != nil {
		return front.Rules{}, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return front.Rules{}, err
	}
	return rulefile.Parse(file, data)
}

// summary says in words what rules there are.
func summary(rules front.Rules) string {
	var jobs []string
	for _, r := range rules.List {
		jobs = append(jobs, r.Job)
	}
	slices.Sort(jobs)
	jobs = slices.Compact(jobs)
	count := func(n int, what string) string {
		if n == 1 {
			return "1 " + what
		}
		return fmt.Sprintf("%d %ss", n, what)
	}
	return fmt.Sprintf("%s for %s: %s", count(len(rules.List), "rule"), count(len(jobs), "job"), strings.Join(jobs, ", "))
}

// cacheFile is where a job's newest assignment is kept, empty for nowhere.
func (f *flags) cacheFile(job string) string {
	if f.cacheDir == "" {
		return ""
	}
	return filepath.Join(f.cacheDir, job+".assignment")
}
