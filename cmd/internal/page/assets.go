package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"path"
	"time"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

//go:embed assets
var embedded embed.FS

// contentTypes are set by hand: those of the machine may be others.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// assets are the files by name, with what tells that one is unchanged.
var assets = func() map[string]asset {
	all := make(map[string]asset)
	entries, err := fs.ReadDir(embedded, "assets")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, e := range entries {
		data, err := embedded.ReadFile("assets/" + e.Name())
		if err != nil {
			panic(err)
		}
		if page, ok := wholePages[e.Name()]; ok {
			var b bytes.Buffer
			if err := templates.ExecuteTemplate(&b, e.Name(), page); err != nil {
				panic(err)
			}
			data = b.Bytes()
		}
		sum := sha256.Sum256(data)
		all[e.Name()] = asset{data, `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	return all
}()

var templates = template.Must(template.ParseFS(embedded, "assets/*.html"))

// wholePages are the pages that are the same for each request, with what their templates need.
var wholePages = map[string]any{
	"overview.html": map[string]any{"Title": "Slicer", "Script": "overview.js"},
	"job.html":      map[string]any{"Title": "Slicer", "Script": "job.js", "Job": true},
}

type asset struct {
	data []byte
	etag string
}

// assetNames are those that anyone may have.
func assetNames() (names []string) {
	for name := range assets {
		if path.Ext(name) != ".html" {
			names = append(names, name)
		}
	}
	return names
}

func serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	a := assets[name]
	w.Header().Set("Content-Type", contentTypes[path.Ext(name)])
	w.Header().Set("ETag", a.etag)
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.data))
}

// secureHeaders says what a browser may do with what it gets: nothing but our own files, and
// no site may frame the page.
func secureHeaders(h http.Handler) http.Handler {
	const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		h.ServeHTTP(w, r)
	})
}

// ownSite keeps pages of other sites from having browsers ask: they would not see the answer, but
// take the place of viewers.
func ownSite(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if run.FromOtherSite(r) {
			http.Error(w, "a page of another site may not ask for this", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// refuse says how the page can be seen.
func (p *Page) refuse(w http.ResponseWriter, r *http.Request) {
	port := "4721"
	if here, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if _, bound, err := net.SplitHostPort(here.String()); err == nil {
			port = bound
		}
	}
	answer(w, http.StatusForbidden, "refused.html", map[string]any{"Title": "Slicer: no access", "Port": port, "TLS": r.TLS != nil})
}

// answer sends a page that is made for the request.
func answer(w http.ResponseWriter, code int, page string, data map[string]any) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, page, data); err != nil {
		http.Error(w, http.StatusText(code), code)
		return
	}
	w.Header().Set("Content-Type", contentTypes[".html"])
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}
