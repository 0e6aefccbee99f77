package deploy

import (
	"crypto/x509"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// certificate is cert-manager's Certificate, as far as deploy/ uses it.
type certificate struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		SecretName  string         `json:"secretName"`
		CommonName  string         `json:"commonName"`
		IsCA        bool           `json:"isCA"`
		Duration    *meta.Duration `json:"duration"`
		RenewBefore *meta.Duration `json:"renewBefore"`
		URIs        []string       `json:"uris"`
		DNSNames    []string       `json:"dnsNames"`
		Usages      []string       `json:"usages"`
		IssuerRef   struct {
			Name  string `json:"name"`
			Kind  string `json:"kind"`
			Group string `json:"group"`
		} `json:"issuerRef"`
		PrivateKey struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
	} `json:"spec"`
}

// issuer is cert-manager's Issuer, likewise.
type issuer struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata"`
	Spec            struct {
		SelfSigned *struct{} `json:"selfSigned"`
		CA         *struct {
			SecretName string `json:"secretName"`
		} `json:"ca"`
	} `json:"spec"`
}

// certificates are those of deploy/kubernetes/certificates.yaml, by Secret. Each is signed by an
// authority that is there.
func certificates(t *testing.T) map[string]*certificate {
	t.Helper()
	found, issuers := map[string]*certificate{}, map[string]*issuer{}
	for _, o := range decode(t, "certificates.yaml", read(t, "kubernetes", "certificates.yaml")) {
		switch o := o.Object.(type) {
		case *certificate:
			found[o.Spec.SecretName] = o
		case *issuer:
			issuers[o.Name] = o
		}
		if o.GetNamespace() != "slicer" {
			t.Errorf("%s %s is in namespace %q, where the chart does not look", o.kind, o.GetName(), o.GetNamespace())
		}
	}
	for _, c := range found {
		from := issuers[c.Spec.IssuerRef.Name]
		if from == nil || c.Spec.IssuerRef.Kind != "Issuer" || c.Spec.IssuerRef.Group != "cert-manager.io" {
			t.Errorf("%s is signed by %+v, which is not there", c.Name, c.Spec.IssuerRef)
			continue
		}
		if ca := from.Spec.CA; c.Spec.IsCA != (from.Spec.SelfSigned != nil) || ca != nil && (found[ca.SecretName] == nil || !found[ca.SecretName].Spec.IsCA) {
			t.Errorf("%s is signed by %s: that gives it no ca.crt that others check it by", c.Name, from.Name)
		}
	}
	return found
}

// TestCertificates: the example of cert-manager makes the Secrets that the chart wants, valid for
// every name by which its parts and its clients call them.
func TestCertificates(t *testing.T) {
	all := certificates(t)
	files, err := render(t, "{policy: x, slicerproxy: {enabled: true, rules: x, secret: slicerproxy-tls}, assigner: {serveLeases: true}}")
	if err != nil {
		t.Fatal(err)
	}
	called := regexp.MustCompile(`[A-Za-z0-9.-]+\.svc:[0-9]+`)
	identities, hosts := map[string]string{}, 0
	for _, file := range slices.Sorted(maps.Keys(files)) {
		objects := decode(t, file, files[file])
		for name, p := range objects.pods() {
			at := slices.IndexFunc(p.Spec.Volumes, func(v core.Volume) bool { return v.Name == "tls" })
			if at < 0 {
				continue
			}
			own := all[p.Spec.Volumes[at].Secret.SecretName]
			if own == nil {
				t.Errorf("%s: no Certificate makes the Secret %s", name, p.Spec.Volumes[at].Secret.SecretName)
				continue
			}
			identities[own.Name] = strings.Join(own.Spec.URIs, " ")
			for _, usage := range []string{"server auth", "client auth"} {
				if !slices.Contains(own.Spec.Usages, usage) {
					t.Errorf("%s: the certificate is not for %s", name, usage)
				}
			}
			for _, arg := range p.Spec.Containers[0].Args {
				if strings.HasPrefix(arg, "--store=") {
					continue // etcd has certificates of its own
				}
				for _, address := range called.FindAllString(strings.ReplaceAll(arg, "$(POD_NAME)", "pod-0"), -1) {
					host, _, _ := net.SplitHostPort(address)
					hosts++
					if err := (&x509.Certificate{DNSNames: all["slicer-tls"].Spec.DNSNames}).VerifyHostname(host); err != nil {
						t.Errorf("%s %s: %v", name, arg, err)
					}
				}
			}
		}
		for _, o := range objects {
			if s, ok := o.Object.(*core.Service); ok && s.Spec.ClusterIP != core.ClusterIPNone {
				serving := all["slicer-tls"]
				if s.Name == "slicer-slicerproxy" {
					serving = all["slicerproxy-tls"]
				}
				if err := (&x509.Certificate{DNSNames: serving.Spec.DNSNames}).VerifyHostname(s.Name + "." + s.Namespace + ".svc"); err != nil {
					t.Errorf("clients of Service %s: %v", s.Name, err)
				}
			}
		}
	}
	if hosts < 8 || len(identities) != 2 {
		t.Errorf("%d names, identities %q", hosts, identities)
	}
	if identities["slicer"] == identities["slicer-slicerproxy"] || !strings.HasPrefix(identities["slicer"], "spiffe://") {
		t.Errorf("slicerproxy is not told from the control plane: %q", identities)
	}
}
