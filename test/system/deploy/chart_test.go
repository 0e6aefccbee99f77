package deploy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// variants are sets of values in which between them every template and branch is rendered.
var variants = map[string]string{
	"default":  "",
	"insecure": "{tls: {secret: ''}, insecure: true, networkPolicy: {enabled: false}}",
	"everything": `
image: {repository: images.example/slicer, tag: v1, pullSecrets: [{name: pull}]}
policy: |
  plane: ["spiffe://example/slicer/**"]
zone: eu-1
assigner: {replicas: 5, serveLeases: true, extraArgs: [--registration-ttl=5s], image: {tag: v2}}
distributor: {replicas: 4, extraArgs: [--serve-distributors]}
backupdist: {extraArgs: [--log-level=debug]}
etcd: {enabled: false, endpoints: ["etcd-1.example:2379", "etcd-2.example:12379"], secret: etcd-client}
backup: {enabled: true}
probe: {enabled: false}
slicerproxy: {enabled: true, rules: "rules: [{job: web, key: {header: X-User}}]", replicas: 3, grpc: true, secret: proxy-tls, plain: true, extraArgs: [--subset=20], image: {tag: v3}}
networkPolicy: {clients: [{namespaceSelector: {matchLabels: {team: web}}}, {ipBlock: {cidr: 10.0.0.0/8}}], tasks: [{namespaceSelector: {matchLabels: {team: web}}}]}
monitoring: {serviceMonitor: true, prometheusRule: true, dashboard: true, labels: {release: prometheus}}
topologySpread: DoNotSchedule
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]
`,
	"proxy":           "{slicerproxy: {enabled: true, rules: 'rules: [{job: web, key: {header: X-User}}]'}}",
	"proxy, insecure": "{tls: {secret: ''}, insecure: true, slicerproxy: {enabled: true, rules: 'rules: [{job: web, key: {header: X-User}}]'}}",
	"etcd of its own": "{etcd: {storageClass: fast, image: {tag: v3.7}}, backup: {enabled: true}, image: {tag: v1}}",
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(path("chart", "slicer"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns the chart's files with these values, by name.
func render(t *testing.T, text string) (map[string]string, error) {
	t.Helper()
	c := load(t)
	v, err := chartutil.ToRenderValues(c, values(t, text), chartutil.ReleaseOptions{Name: "slicer", Namespace: "slicer", IsInstall: true, Revision: 1}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err // of values.schema.json
	}
	files, err := engine.Engine{Strict: true}.Render(c, v)
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") || strings.TrimSpace(files[name]) == "" {
			delete(files, name)
		}
	}
	return files, err
}

func TestChartIsClean(t *testing.T) {
	for name, text := range variants {
		for _, m := range lint.All(path("chart", "slicer"), values(t, text), "slicer", true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestChartDecodes: what comes out is what Kubernetes and the Prometheus operator take, and
// holds together.
func TestChartDecodes(t *testing.T) {
	kinds := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(variants)) {
		files, err := render(t, variants[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var all objects
		for _, file := range slices.Sorted(maps.Keys(files)) {
			all = append(all, decode(t, name+": "+file, files[file])...)
		}
		for _, o := range all {
			kinds[o.kind]++
		}
		all.check(t, name)
	}
	for _, kind := range []string{"StatefulSet", "Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "ServiceAccount", "ConfigMap", "CronJob", "ServiceMonitor", "PrometheusRule"} {
		if kinds[kind] == 0 {
			t.Errorf("nothing of kind %s is rendered", kind)
		}
	}
	t.Logf("%v", kinds)
}

// TestChartProxy: a slicerproxy that is switched on has what the other parts have, and its way to
// them, to tasks and to its rules is open.
func TestChartProxy(t *testing.T) {
	files, err := render(t, variants["everything"])
	if err != nil {
		t.Fatal(err)
	}
	var all objects
	for _, file := range slices.Sorted(maps.Keys(files)) {
		all = append(all, decode(t, file, files[file])...)
	}
	for _, kind := range []string{"Service", "ConfigMap", "Deployment", "PodDisruptionBudget", "NetworkPolicy"} {
		if !slices.ContainsFunc(all, func(o object) bool { return o.kind == kind && o.GetName() == "slicer-slicerproxy" }) {
			t.Errorf("slicerproxy has no %s", kind)
		}
	}
	for _, o := range all {
		switch o := o.Object.(type) {
		case *networking.NetworkPolicy:
			lets := slices.ContainsFunc(o.Spec.Ingress, func(r networking.NetworkPolicyIngressRule) bool {
				return slices.ContainsFunc(r.From, func(p networking.NetworkPolicyPeer) bool {
					return p.PodSelector != nil && p.PodSelector.MatchLabels["app.kubernetes.io/component"] == "slicerproxy"
				})
			})
			if want := o.Name == "slicer-distributor" || o.Name == "slicer-backupdist"; lets != want {
				t.Errorf("the NetworkPolicy %s lets slicerproxy in: %v", o.Name, lets)
			}
		case *core.ConfigMap:
			if o.Name == "slicer-slicerproxy" && !strings.Contains(o.Data["rules.yaml"], "job: web") {
				t.Errorf("the rules are %q", o.Data)
			}
		case *monitoring.ServiceMonitor:
			sel, err := meta.LabelSelectorAsSelector(&o.Spec.Selector)
			for _, s := range all {
				if svc, ok := s.Object.(*core.Service); ok && svc.Name == "slicer-slicerproxy" && (err != nil || !sel.Matches(labels.Set(svc.Labels)) || !slices.ContainsFunc(svc.Spec.Ports, func(p core.ServicePort) bool {
					return p.Name == o.Spec.Endpoints[0].Port && p.Port == httpPorts["slicerproxy"]
				})) {
					t.Errorf("the ServiceMonitor does not find the metrics of slicerproxy: %v", err)
				}
			}
		}
	}
	// Where it is off there is nothing of it.
	if files, err = render(t, ""); err != nil || strings.Contains(fmt.Sprint(files), "slicerproxy") {
		t.Errorf("slicerproxy is in the chart's default: %v", err)
	}
}

// TestChartFlags: each flag in the chart is one of the program's, by the table that test/house
// makes of the programs. test/system/rollout starts those that are on by default.
func TestChartFlags(t *testing.T) {
	reference := read(t, "docs", "REFERENCE.md")
	found := map[string]bool{}
	for name, text := range variants {
		files, err := render(t, text)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range slices.Sorted(maps.Keys(files)) {
			for part, p := range decode(t, file, files[file]).pods() {
				c := p.Spec.Containers[0]
				program := strings.TrimPrefix(c.Command[0], "/bin/")
				if _, served := httpPorts[program]; !served {
					continue
				}
				found[program] = true
				_, flags, _ := strings.Cut(reference, "\n`"+program+"`\n")
				flags, _, _ = strings.Cut(flags, "\n```\n\n")
				for _, arg := range c.Args {
					flag, _, _ := strings.Cut(arg, "=")
					if !regexp.MustCompile(`(?m)^ .*` + regexp.QuoteMeta(flag) + `( |$)`).MatchString(flags) {
						t.Errorf("%s: %s: %s has no flag %s", name, part, program, flag)
					}
				}
			}
		}
	}
	if len(found) != len(httpPorts) {
		t.Errorf("of the programs only %v are in the chart", found)
	}
}

// TestChartRefuses: values that would serve strangers by mistake, or no store.
func TestChartRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{tls: {secret: ''}}":                                                     "insecure: true",
		"{insecure: true}":                                                        "not allowed together",
		"{tls: {secret: ''}, insecure: true, policy: x}":                          "policy needs tls.secret",
		"{etcd: {enabled: false}}":                                                "etcd.endpoints is empty",
		"{slicerproxy: {enabled: true}}":                                          "slicerproxy.rules is empty",
		"{slicerproxy: {enabled: true, rules: x}, policy: x}":                     "an identity of its own",
		"{slicerproxy: {enabled: true, rules: x, secret: slicer-tls}, policy: x}": "an identity of its own",
		"{slicerproxy: {secret: x}, tls: {secret: ''}, insecure: true}":           "not allowed without tls.secret",
		"{distributors: {replicas: 4}}":                                           "distributors",
		"{assigner: {replicas: 0}}":                                               "replicas",
		"{topologySpread: Spread}":                                                "topologySpread",
	} {
		if _, err := render(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// emptyLines are where a template had nothing to put.
var emptyLines = regexp.MustCompile(`(\n[ \t]*)+\n`)

// TestManifests: the plain manifests are the chart's, with its default values.
func TestManifests(t *testing.T) {
	files, err := render(t, variants["default"])
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Made from deploy/chart/slicer with its default values by\n#\n#\tgo -C test/system/deploy test . -update\n#\n# Change the chart, not this file.\n")
	for _, file := range slices.Sorted(maps.Keys(files)) {
		text := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(files[file]), "---"))
		fmt.Fprintf(&b, "---\n%s\n", emptyLines.ReplaceAllString(text, "\n"))
	}
	same(t, b.String(), "kubernetes", "slicer.yaml")
	for _, file := range []string{"namespace.yaml", "slicer.yaml", "application.yaml"} {
		objects(decode(t, file, read(t, "kubernetes", file))).check(t, file)
	}
}

// TestValuesTable: DEPLOY.md has a row for each value, with its default and its comment.
func TestValuesTable(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(read(t, "chart", "slicer", "values.yaml")), &doc); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| value | default | what it is |\n| --- | --- | --- |\n")
	rows(t, &b, "", doc.Content[0])
	const begin, end = "<!-- begin values -->\n", "<!-- end values -->"
	page := read(t, "docs", "DEPLOY.md")
	before, rest, ok := strings.Cut(page, begin)
	_, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatal("DEPLOY.md has no section for the values")
	}
	same(t, before+begin+b.String()+end+after, "docs", "DEPLOY.md")
}

func rows(t *testing.T, b *strings.Builder, prefix string, m *yaml.Node) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		name := prefix + key.Value
		if value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0 && !strings.HasSuffix(name, ".resources") {
			rows(t, b, name+".", value)
			continue
		}
		text := value.Value
		if value.Kind != yaml.ScalarNode {
			flow := *value
			flow.Style = yaml.FlowStyle
			for _, c := range flow.Content {
				c.Style |= yaml.FlowStyle
			}
			out, err := yaml.Marshal(&flow)
			if err != nil {
				t.Fatal(err)
			}
			text = strings.Join(strings.Fields(string(out)), " ")
		}
		if text == "" {
			text = `""`
		}
		what := strings.TrimSpace(strings.ReplaceAll(strings.ReplaceAll(key.HeadComment, "# ", ""), "\n", " "))
		if what == "" {
			t.Errorf("values.yaml says nothing of %s", name)
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s |\n", name, text, what)
	}
}
