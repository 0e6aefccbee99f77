package access

import (
	"crypto/x509"
	"net/url"
	"slices"
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// Identity is who a peer is: a SPIFFE id, a DNS name in lower case, or Anonymous.
type Identity string

// Anonymous has no verified certificate, or one without a usable name.
const Anonymous Identity = "anonymous"

// Of is the identity in a certificate that has been verified: its first SPIFFE URI SAN, else
// its first DNS SAN. It is Anonymous for nil, and where that name is not a valid one, so that
// no name of one kind can pass for one of the other.
func Of(cert *x509.Certificate) Identity {
	if cert == nil {
		return Anonymous
	}
	for _, u := range cert.URIs {
		if strings.EqualFold(u.Scheme, "spiffe") {
			return spiffe(u)
		}
	}
	if len(cert.DNSNames) > 0 {
		return host(cert.DNSNames[0])
	}
	return Anonymous
}

// Nameless is why an identity is Anonymous, in words for the one that is refused.
type Nameless string

// What Read returns.
const (
	Named         Nameless = ""
	NoCertificate Nameless = "no certificate was presented"
	NoName        Nameless = "the certificate has no SPIFFE URI and no DNS SAN"
	BadName       Nameless = "the certificate's first SPIFFE URI SAN, or else its first DNS SAN, is not a valid name"
)

// Read is Of, and why the identity is Anonymous: Named if it is not.
func Read(cert *x509.Certificate) (Identity, Nameless) {
	id := Of(cert)
	switch {
	case cert == nil:
		return id, NoCertificate
	case id != Anonymous:
		return id, Named
	case len(cert.DNSNames) > 0 || slices.ContainsFunc(cert.URIs, func(u *url.URL) bool { return strings.EqualFold(u.Scheme, "spiffe") }):
		return id, BadName
	}
	return id, NoName
}

// spiffe checks the form that the SPIFFE standard demands of an id ("The SPIFFE Identity and
// Verifiable Identity Document", section 2): no query, no port, no empty, . or .. segments.
func spiffe(u *url.URL) Identity {
	id := u.String()
	path, rooted := strings.CutPrefix(u.Path, "/")
	switch {
	case len(id) > assignment.MaxIdentityLen, u.Scheme != "spiffe", u.User != nil, u.RawQuery != "", u.ForceQuery, u.Fragment != "",
		!of(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_"), id != "spiffe://"+u.Host+u.Path:
		return Anonymous
	case u.Path == "":
		return Identity(id)
	case !rooted:
		return Anonymous
	}
	for s := range strings.SplitSeq(path, "/") {
		if s == "." || s == ".." || !of(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") {
			return Anonymous
		}
	}
	return Identity(id)
}

// host is the identity of a DNS name.
func host(name string) Identity {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if len(name) > 253 || !of(name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") {
		return Anonymous
	}
	return Identity(name)
}

// of reports whether s is not empty and made of chars alone.
func of(s, chars string) bool {
	return s != "" && strings.Trim(s, chars) == ""
}

// Valid reports whether an identity is one that Of can return, for those that come in a
// message of a peer that is believed.
func (id Identity) Valid() bool {
	if id == Anonymous {
		return true
	}
	if !strings.HasPrefix(string(id), "spiffe:") {
		return id != "" && host(string(id)) == id
	}
	u, err := url.Parse(string(id))
	return err == nil && spiffe(u) == id
}
