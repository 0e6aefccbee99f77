package browser

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Screenshots names the folder that pictures of pages are put in, if it is set.
const Screenshots = "SLICER_SCREENSHOTS"

// poll is how often a page is asked whether something is so.
const poll = 10 * time.Millisecond

// Tab is a page that is open. Its methods end the test when the browser fails.
type Tab struct {
	b       *Browser
	tb      testing.TB
	session string
	target  string

	wrong []string // what the page did not like; the browser's lock is held
}

// Open opens a page in a tab of its own, of a size in pixels.
func (b *Browser) Open(tb testing.TB, url string, width, height int) *Tab {
	tb.Helper()
	t := &Tab{b: b, tb: tb}
	var made struct {
		TargetID string `json:"targetId"`
	}
	t.must(b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &made))
	t.target = made.TargetID
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	t.must(b.call("", "Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &attached))
	t.session = attached.SessionID
	b.mu.Lock()
	b.tabs[t.session] = t
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		t.Call(domain+".enable", map[string]any{}, nil)
	}
	// Time is that which the page's thread had a processor for: others use the machine, too.
	t.Call("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	t.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	t.Go(url)
	return t
}

func (t *Tab) must(err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatalf("browser: %v", err)
	}
}

// Call is a command of the protocol; result may be nil.
func (t *Tab) Call(method string, params, result any) {
	t.tb.Helper()
	t.must(t.b.call(t.session, method, params, result))
}

// Go leads the tab to a page.
func (t *Tab) Go(url string) {
	t.tb.Helper()
	var went struct {
		ErrorText string `json:"errorText"`
	}
	t.Call("Page.navigate", map[string]any{"url": url}, &went)
	if went.ErrorText != "" {
		t.tb.Fatalf("browser: %s: %s", url, went.ErrorText)
	}
}

// Close closes the tab.
func (t *Tab) Close() {
	t.tb.Helper()
	t.must(t.b.call("", "Target.closeTarget", map[string]any{"targetId": t.target}, nil))
	t.b.mu.Lock()
	delete(t.b.tabs, t.session)
	t.b.mu.Unlock()
}

// Eval puts the value of an expression, or what a promise comes to, into result.
func (t *Tab) Eval(expression string, result any) {
	t.tb.Helper()
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception *struct {
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	t.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if x := out.Exception; x != nil {
		t.tb.Fatalf("browser: %s: %s %s", expression, x.Text, x.Exception.Description)
	}
	if result != nil && len(out.Result.Value) > 0 {
		if err := json.Unmarshal(out.Result.Value, result); err != nil {
			t.tb.Fatalf("browser: %s is %s: %v", expression, out.Result.Value, err)
		}
	}
}

// Text is that of the first element that a selector finds.
func (t *Tab) Text(selector string) (text string) {
	t.tb.Helper()
	quoted, _ := json.Marshal(selector)
	t.Eval("document.querySelector("+string(quoted)+")?.innerText ?? ''", &text)
	return text
}

// Until waits until an expression is true, and returns for how long. While it throws, as in a
// page that is not there yet, it is not.
func (t *Tab) Until(expression string) time.Duration {
	t.tb.Helper()
	began := time.Now()
	for {
		var so bool
		t.Eval("(() => { try { return !!("+expression+") } catch { return false } })()", &so)
		took := time.Since(began)
		if so {
			return took
		}
		if took > limit {
			t.Screenshot("failed")
			t.tb.Fatalf("browser: it does not come to %s within %s; the page says:\n%s\n%q", expression, limit, t.Text("body"), t.Wrong())
		}
		time.Sleep(poll)
	}
}

// Dark reports whether the page is looked at in the dark.
func (t *Tab) Dark(dark bool) {
	t.tb.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	t.Call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Press presses a key, such as "Tab", "ArrowRight" or "Enter".
func (t *Tab) Press(key string) {
	t.tb.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
	text := map[string]string{"Enter": "\r"}[key]
	for _, kind := range []string{"keyDown", "keyUp"} {
		t.Call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": codes[key], "text": text}, nil)
	}
}

// Metric is one of the browser's own measurements of the page, such as ScriptDuration, which
// is seconds of a processor.
func (t *Tab) Metric(name string) float64 {
	t.tb.Helper()
	var all struct {
		Metrics []struct {
			Name  string  `json:"name"`
			Value float64 `json:"value"`
		} `json:"metrics"`
	}
	t.Call("Performance.getMetrics", map[string]any{}, &all)
	for _, m := range all.Metrics {
		if m.Name == name {
			return m.Value
		}
	}
	t.tb.Fatalf("browser: there is no metric %s", name)
	return 0
}

// Screenshot puts a picture of the whole page into the folder that the environment names.
func (t *Tab) Screenshot(name string) {
	t.tb.Helper()
	dir := os.Getenv(Screenshots)
	if dir == "" {
		return
	}
	var shot struct {
		Data []byte `json:"data"` // base64, as encoding/json has it
	}
	t.Call("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &shot)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), shot.Data, 0o644); err != nil {
		t.tb.Fatal(err)
	}
}

// Wrong is what went wrong on the page: exceptions, and what the log calls an error, as what
// the Content-Security-Policy forbids.
func (t *Tab) Wrong() []string {
	t.b.mu.Lock()
	defer t.b.mu.Unlock()
	return append([]string(nil), t.wrong...)
}

func (t *Tab) noteLocked(method string, params json.RawMessage) {
	switch method {
	case "Runtime.exceptionThrown":
		t.wrong = append(t.wrong, string(params))
	case "Log.entryAdded":
		var p struct {
			Entry struct {
				Level string `json:"level"`
				Text  string `json:"text"`
				URL   string `json:"url"`
			} `json:"entry"`
		}
		if json.Unmarshal(params, &p) == nil && p.Entry.Level == "error" {
			t.wrong = append(t.wrong, p.Entry.Text+" "+p.Entry.URL)
		}
	}
}
