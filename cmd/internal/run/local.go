package run

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// Local reports whether a request was made on this machine: both ends are loopback addresses.
// One was not that a proxy has passed on, as far as it tells: by a header, or by HTTP/1.0, which
// some proxies speak and no browser does. Nor is one believed that names another host, as a
// browser does which was led here by a foreign site's DNS record.
func Local(r *http.Request) bool {
	if !r.ProtoAtLeast(1, 1) {
		return false
	}
	for name := range r.Header {
		switch {
		case name == "Forwarded", name == "Via", name == "X-Real-Ip", strings.HasPrefix(name, "X-Forwarded-"):
			return false
		}
	}
	here, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return here != nil && loopbackHost(here.String()) && loopbackHost(r.RemoteAddr) && loopbackHost(r.Host)
}

// NamedHere reports whether a request names this host: by an address, as localhost, or by one of
// names, in lower case. A browser that a foreign site's DNS record has led here names that site's
// host, and that site is told what is answered. In TLS the certificate keeps it from that.
func NamedHere(r *http.Request, names []string) bool {
	host := strings.ToLower(strings.TrimSuffix(hostOf(r.Host), "."))
	return r.TLS != nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil || slices.Contains(names, host)
}

func loopbackHost(host string) bool {
	host = hostOf(host)
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// hostOf leaves out a port, if there is one, and the brackets of an IPv6 address.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// FromOtherSite reports whether a browser asks because a page of another site has it do so,
// other than by going there, as with a link. That site is not told the answer, but it would cost
// as much as any.
func FromOtherSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return r.Header.Get("Sec-Fetch-Dest") != "document"
	}
	return false
}
