package deploy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"go.yaml.in/yaml/v3"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	strict "sigs.k8s.io/yaml"
)

// kindsOf are what may be rendered, by apiVersion and kind.
var kindsOf = map[string]func() meta.Object{
	"v1 ConfigMap":                            func() meta.Object { return &core.ConfigMap{} },
	"v1 Namespace":                            func() meta.Object { return &core.Namespace{} },
	"v1 Service":                              func() meta.Object { return &core.Service{} },
	"v1 ServiceAccount":                       func() meta.Object { return &core.ServiceAccount{} },
	"apps/v1 Deployment":                      func() meta.Object { return &apps.Deployment{} },
	"apps/v1 StatefulSet":                     func() meta.Object { return &apps.StatefulSet{} },
	"batch/v1 CronJob":                        func() meta.Object { return &batch.CronJob{} },
	"batch/v1 Job":                            func() meta.Object { return &batch.Job{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() meta.Object { return &networking.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":           func() meta.Object { return &policy.PodDisruptionBudget{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() meta.Object { return &monitoring.ServiceMonitor{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() meta.Object { return &monitoring.PrometheusRule{} },
	"cert-manager.io/v1 Certificate":          func() meta.Object { return &certificate{} },
	"cert-manager.io/v1 Issuer":               func() meta.Object { return &issuer{} },
}

// httpPorts are the ports of --http by program. Without the flag a program keeps its port to its
// own machine.
var httpPorts = map[string]int32{"assigner": 4711, "distributor": 4721, "backupdist": 4731, "slicerproxy": 4741}

type object struct {
	kind string
	meta.Object
}

type objects []object

// decode reads the documents of a file into their types. A field that a type does not have
// fails, and so does a key that stands twice.
func decode(t *testing.T, name, text string) (all objects) {
	t.Helper()
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var doc yaml.Node
		if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
			return all
		}
		var b bytes.Buffer
		if err := yaml.NewEncoder(&b).Encode(&doc); err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(b.String()) == "null" {
			continue
		}
		var head meta.TypeMeta
		if err := strict.Unmarshal(b.Bytes(), &head); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		make, ok := kindsOf[head.APIVersion+" "+head.Kind]
		if !ok {
			t.Errorf("%s: no type for %s %s", name, head.APIVersion, head.Kind)
			continue
		}
		o := make()
		if err := strict.UnmarshalStrict(b.Bytes(), o); err != nil {
			t.Errorf("%s: %s %s: %v", name, head.Kind, o.GetName(), err)
		}
		all = append(all, object{head.Kind, o})
	}
}

// pods are the templates among the objects, by the name of what makes them.
func (all objects) pods() map[string]core.PodTemplateSpec {
	found := map[string]core.PodTemplateSpec{}
	for _, o := range all {
		switch o := o.Object.(type) {
		case *apps.Deployment:
			found[o.Name] = o.Spec.Template
		case *apps.StatefulSet:
			found[o.Name] = o.Spec.Template
		case *batch.Job:
			found[o.Name] = o.Spec.Template
		case *batch.CronJob:
			found[o.Name] = o.Spec.JobTemplate.Spec.Template
		}
	}
	return found
}

// check looks at what a type cannot say: that names lead somewhere, that each long-running part
// has probes, a budget and time to end, and that no pod has more rights than it needs.
func (all objects) check(t *testing.T, where string) {
	t.Helper()
	pods := all.pods()
	named := map[string]bool{}
	for _, o := range all {
		id := o.kind + " " + o.GetName()
		if named[id] {
			t.Errorf("%s: %s stands twice", where, id)
		}
		named[id] = true
		if o.GetNamespace() == "" && o.kind != "Namespace" {
			t.Errorf("%s: %s has no namespace", where, id)
		}
		switch o := o.Object.(type) {
		case *core.Service:
			all.selects(t, where+": "+id, &meta.LabelSelector{MatchLabels: o.Spec.Selector}, o.Spec.Ports)
		case *policy.PodDisruptionBudget:
			all.selects(t, where+": "+id, o.Spec.Selector, nil)
		case *networking.NetworkPolicy:
			all.selects(t, where+": "+id, &o.Spec.PodSelector, nil)
		case *apps.StatefulSet:
			all.workload(t, where+": "+id, o.Spec.Selector, o.Spec.Template)
			if !slices.ContainsFunc(all, func(s object) bool { return s.kind == "Service" && s.GetName() == o.Spec.ServiceName }) {
				t.Errorf("%s: %s: there is no Service %s", where, id, o.Spec.ServiceName)
			}
		case *apps.Deployment:
			all.workload(t, where+": "+id, o.Spec.Selector, o.Spec.Template)
		}
	}
	for name, p := range pods {
		confined(t, where+": "+name, p.Spec)
	}
}

// selects wants a selector to find exactly one part, and the ports of a Service to be its.
func (all objects) selects(t *testing.T, where string, s *meta.LabelSelector, ports []core.ServicePort) {
	t.Helper()
	sel, err := meta.LabelSelectorAsSelector(s)
	if err != nil {
		t.Error(where, err)
		return
	}
	var found []core.PodTemplateSpec
	for _, p := range all.pods() {
		if sel.Matches(labels.Set(p.Labels)) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		t.Errorf("%s selects the pods of %d parts", where, len(found))
		return
	}
	for _, port := range ports {
		if !slices.ContainsFunc(found[0].Spec.Containers[0].Ports, func(c core.ContainerPort) bool {
			return port.TargetPort == intstr.FromString(c.Name) && c.ContainerPort == port.Port
		}) {
			t.Errorf("%s: port %v is none of the container's", where, port)
		}
	}
}

// workload holds a part that runs for ever to what keeps it running.
func (all objects) workload(t *testing.T, where string, s *meta.LabelSelector, p core.PodTemplateSpec) {
	t.Helper()
	if sel, err := meta.LabelSelectorAsSelector(s); err != nil || !sel.Matches(labels.Set(p.Labels)) {
		t.Errorf("%s does not select its own pods: %v", where, err)
	}
	c := p.Spec.Containers[0]
	if c.ReadinessProbe == nil || c.LivenessProbe == nil {
		t.Errorf("%s has no probes", where)
	}
	for _, port := range c.Ports {
		if flag := fmt.Sprintf("--http=:%d", port.ContainerPort); httpPorts[strings.TrimPrefix(c.Command[0], "/bin/")] == port.ContainerPort && !slices.Contains(c.Args, flag) {
			t.Errorf("%s: without %s no probe and no Prometheus reaches it", where, flag)
		}
	}
	if !slices.ContainsFunc(all, func(o object) bool {
		b, ok := o.Object.(*policy.PodDisruptionBudget)
		if !ok {
			return false
		}
		sel, err := meta.LabelSelectorAsSelector(b.Spec.Selector)
		return err == nil && sel.Matches(labels.Set(p.Labels))
	}) {
		t.Errorf("%s has no PodDisruptionBudget", where)
	}
	grace, sleeps := p.Spec.TerminationGracePeriodSeconds, int64(0)
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		sleeps = c.Lifecycle.PreStop.Sleep.Seconds
	}
	// run.StopLimit is 15 s; test/system/rollout compares it.
	if grace == nil || *grace < sleeps+15+5 {
		t.Errorf("%s is killed before it can have ended", where)
	}
	if len(p.Spec.TopologySpreadConstraints) == 0 {
		t.Errorf("%s is not spread", where)
	}
	for _, c := range p.Spec.TopologySpreadConstraints {
		if sel, err := meta.LabelSelectorAsSelector(c.LabelSelector); err != nil || !sel.Matches(labels.Set(p.Labels)) {
			t.Errorf("%s: its spread over %s does not count its own pods: %v", where, c.TopologyKey, err)
		}
	}
}

// confined holds a pod to the restricted standard of Kubernetes, and to volumes that are there.
func confined(t *testing.T, where string, p core.PodSpec) {
	t.Helper()
	s := p.SecurityContext
	if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile == nil || s.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: its security context is %+v", where, s)
	}
	if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken {
		t.Errorf("%s has a token of Kubernetes' API", where)
	}
	volumes := map[string]bool{"data": true} // that of volumeClaimTemplates
	for _, v := range p.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range p.Containers {
		s := c.SecurityContext
		if s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
			s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) {
			t.Errorf("%s: the security context of %s is %+v", where, c.Name, s)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: %s has no requests or no limit of memory", where, c.Name)
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				t.Errorf("%s: %s mounts %s, which is no volume", where, c.Name, m.Name)
			}
		}
	}
}
