package run

import (
	"net/http"
	"net/http/pprof"

	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment/access/enforce"
)

// serveRuntime adds what an operator may look at and change while the process runs:
// /loglevel and /debug/pprof/. Both are for administrators of the policy, by the
// certificate that they come with, and without a policy for callers on this machine.
func (s *Status) serveRuntime(l *logging, rights *enforce.Rights) {
	profile := http.NewServeMux()
	profile.HandleFunc("/debug/pprof/", pprof.Index)
	profile.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	profile.HandleFunc("/debug/pprof/profile", pprof.Profile)
	profile.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	profile.HandleFunc("/debug/pprof/trace", pprof.Trace)
	for pattern, h := range map[string]http.Handler{
		"GET /loglevel":            http.HandlerFunc(l.get),
		"PUT /loglevel":            http.HandlerFunc(l.put),
		"GET /debug/pprof/":        limitScrapes(profile),
		"POST /debug/pprof/symbol": limitScrapes(profile),
	} {
		s.Handle(pattern, ForAdmin(rights, h))
	}
}

// ForAdmin lets to h alone whom the policy in force names as administrators, by the verified
// certificate, and without a policy alone what is Local. A page on another site cannot make a
// browser on this machine ask in its place.
func ForAdmin(rights *enforce.Rights, h http.Handler) http.Handler {
	safe := http.NewCrossOriginProtection().Handler(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := rights.CheckAdmin(enforce.HTTPCaller(r), r.URL.Path); err != nil {
			http.Error(w, status.Convert(err).Message(), http.StatusForbidden)
			return
		}
		if policy, _ := rights.Policy(); policy == nil && !Local(r) {
			http.Error(w, "the request has to be made on this machine, to localhost or a loopback address, by HTTP/1.1 or newer, and not passed on by a proxy", http.StatusForbidden)
			return
		}
		if FromOtherSite(r) {
			http.Error(w, "a page of another site may not ask for this", http.StatusForbidden)
			return
		}
		safe.ServeHTTP(w, r)
	})
}
