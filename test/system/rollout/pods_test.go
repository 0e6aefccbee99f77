//go:build system

package rollout

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slicer-project/slicer/test/kit/process"
)

// within bounds what is waited for, on a busy machine.
const within = 2 * time.Minute

// cluster runs pods of manifests as processes. What a pod's command line names by DNS is
// replaced by loopback addresses, and what it would listen on by default is said.
type cluster struct {
	*testing.T
	dir      string
	objects  []object
	mu       sync.Mutex // guards pods, which services read
	pods     []*pod
	services map[string]*service // by what pods call them, host:port
}

// pod is one, under a name and at addresses of its own.
type pod struct {
	*process.Process
	name  string
	of    *object
	ports map[int]string // addresses, by the container's port
	ready atomic.Bool
}

// newCluster lays out all pods and starts none.
func newCluster(t *testing.T, files ...string) *cluster {
	c := &cluster{T: t, dir: t.TempDir(), objects: objects(t, files...), services: map[string]*service{}}
	for i := range c.objects {
		if o := &c.objects[i]; o.runs() {
			for n := range max(o.Spec.Replicas, 1) {
				c.pods = append(c.pods, c.place(o, n))
			}
		}
	}
	for i := range c.objects {
		o := &c.objects[i]
		if o.Kind == "Service" && o.Spec.ClusterIP != "None" {
			for _, p := range o.Spec.Ports {
				c.services[fmt.Sprintf("%s.%s.svc:%d", o.Metadata.Name, o.Metadata.Namespace, p.Port)] = newService(c, o, p.Port)
			}
		}
	}
	return c
}

func (c *cluster) place(o *object, n int) *pod {
	p := &pod{name: fmt.Sprintf("%s-%d", o.Metadata.Name, n), of: o, ports: map[int]string{}}
	ports := o.Spec.Template.Spec.Containers[0].Ports
	for i, addr := range process.FreePorts(c, len(ports)) {
		p.ports[ports[i].ContainerPort] = addr
	}
	return p
}

// part are the pods of a workload, by ordinal.
func (c *cluster) part(name string) (found []*pod) {
	for _, p := range c.pods {
		if p.of.Metadata.Name == name {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		c.Fatalf("the manifests have no %s", name)
	}
	return found
}

// resolve replaces what a pod's DNS and the downward API would tell it.
func (c *cluster) resolve(p *pod, text string) string {
	text = strings.ReplaceAll(text, "$(POD_NAME)", p.name)
	for _, other := range c.pods {
		o := other.of
		for port, addr := range other.ports {
			text = strings.ReplaceAll(text, fmt.Sprintf("%s.%s.%s.svc:%d", other.name, o.Spec.ServiceName, o.Metadata.Namespace, port), addr)
		}
	}
	for name, s := range c.services {
		text = strings.ReplaceAll(text, name, s.addr)
	}
	// A headless Service stands for all pods.
	for i := range c.objects {
		o := &c.objects[i]
		if !o.runs() || o.Spec.ServiceName == "" {
			continue
		}
		pods := c.part(o.Metadata.Name)
		for port := range pods[0].ports {
			var all []string
			for _, p := range pods {
				all = append(all, p.ports[port])
			}
			text = strings.ReplaceAll(text, fmt.Sprintf("%s.%s.svc:%d", o.Spec.ServiceName, o.Metadata.Namespace, port), strings.Join(all, ","))
		}
	}
	for port, addr := range p.ports { // its own, on all interfaces
		text = strings.ReplaceAll(text, fmt.Sprintf("0.0.0.0:%d", port), addr)
		_, free, _ := net.SplitHostPort(addr)
		if i, ok := strings.CutSuffix(text, fmt.Sprintf("=:%d", port)); ok {
			text = i + "=:" + free
		}
	}
	return text
}

// run starts a pod's container.
func (c *cluster) run(p *pod) {
	c.Helper()
	ct := p.of.Spec.Template.Spec.Containers[0]
	argv := []string{build(c.T, ct.program())}
	plain := false
	for _, a := range ct.Args {
		if strings.HasPrefix(a, "--tls-") { // the chart's other way: insecure
			plain = true
			continue
		}
		a = strings.Replace(a, "=/data/", "="+filepath.Join(c.dir, p.name)+"/", 1)
		argv = append(argv, c.resolve(p, a))
	}
	if plain {
		argv = append(argv, "--insecure", "--listen="+p.at("grpc"), "--http="+p.at("http"))
	}
	for _, a := range argv[1:] {
		if strings.Contains(a, ".svc") || strings.Contains(a, "$(") {
			c.Fatalf("%s: %s is not resolved", p.name, a)
		}
	}
	var env []string
	for _, e := range ct.Env {
		if strings.HasPrefix(e.Name, "SLICER_TLS_") { // as --tls- above
			continue
		}
		switch e.ValueFrom.FieldRef.FieldPath {
		case "metadata.name":
			env = append(env, e.Name+"="+p.name)
		case "status.podIP":
			env = append(env, e.Name+"=127.0.0.1")
		case "":
			env = append(env, e.Name+"="+c.resolve(p, e.Value))
		default:
			c.Fatalf("%s: %s is %s, which nothing here knows", p.name, e.Name, e.ValueFrom.FieldRef.FieldPath)
		}
	}
	p.Process = process.Start(c, p.name, env, argv...)
}

// at is the address of a port by its name.
func (p *pod) at(name string) string {
	for _, port := range p.of.Spec.Template.Spec.Containers[0].Ports {
		if port.Name == name {
			return p.ports[port.ContainerPort]
		}
	}
	return ""
}

// wait returns once the readiness probe answers; a pod without one over HTTP is ready at once.
func (p *pod) wait(t *testing.T) {
	t.Helper()
	at := p.at("http")
	if at == "" {
		p.ready.Store(true)
		return
	}
	client := http.Client{Timeout: 5 * time.Second}
	process.Eventually(t, within, p.name+" is ready", func() error {
		if p.Ended() {
			t.Fatalf("%s has ended: %s", p.name, p.State())
		}
		resp, err := client.Get("http://" + at + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if why, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s, %w", resp.Status, why, err)
		}
		return nil
	})
	p.ready.Store(true)
}

// end is what a kubelet does: no new connections, SIGTERM, and the time that the pod has.
func (c *cluster) end(p *pod) {
	c.Helper()
	p.ready.Store(false)
	p.End(time.Duration(p.of.Spec.Template.Spec.Grace) * time.Second)
}

// upgrade replaces the pods of a part as its controller does: of a StatefulSet one after the
// other from the last, of a Deployment each by one that is ready before.
func (c *cluster) upgrade(part string, each func(p *pod)) {
	c.Helper()
	pods := c.part(part)
	for i, p := range slices.Backward(pods) {
		if p.of.Kind == "StatefulSet" {
			c.end(p)
			c.run(p)
			p.wait(c.T)
		} else {
			next := c.place(p.of, len(pods)+i)
			c.run(next)
			next.wait(c.T)
			c.mu.Lock()
			c.pods[slices.Index(c.pods, p)] = next
			c.mu.Unlock()
			c.end(p)
		}
		each(p)
	}
}

// service takes connections for the pods that are ready, in turns, as a ClusterIP does.
type service struct {
	addr string
	next int // what the cluster's mu guards, too
}

func newService(c *cluster, o *object, port int) *service {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	s := &service{addr: lis.Addr().String()}
	var wg sync.WaitGroup
	var conns sync.Map
	wg.Go(func() {
		for {
			in, err := lis.Accept()
			if err != nil {
				return
			}
			to := s.choose(c, o, port)
			out, err := net.Dial("tcp", to)
			if to == "" || err != nil {
				in.Close()
				continue
			}
			conns.Store(in, true)
			conns.Store(out, true)
			wg.Go(func() { _, _ = io.Copy(out, in); out.Close(); in.Close() })
			wg.Go(func() { _, _ = io.Copy(in, out); in.Close(); out.Close() })
		}
	})
	c.Cleanup(func() {
		lis.Close()
		conns.Range(func(conn, _ any) bool { conn.(net.Conn).Close(); return true })
		wg.Wait()
	})
	return s
}

// choose returns the address of a pod that is ready, empty if none is.
func (s *service) choose(c *cluster, o *object, port int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var ready []string
	for _, p := range c.pods {
		if p.ready.Load() && selects(o.Spec.Selector, p.of.Spec.Template.Metadata.Labels) {
			ready = append(ready, p.ports[port])
		}
	}
	if len(ready) == 0 {
		return ""
	}
	s.next++
	return ready[s.next%len(ready)]
}

func selects(selector map[string]any, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
