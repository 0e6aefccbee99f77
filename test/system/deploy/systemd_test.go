package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// maxExposure is what systemd calls OK of 0 (confined) to 10.
const maxExposure = 2.5

// TestUnits has systemd's own analyser read the units, in a root of their own in which the
// programs are there.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed: apt-get install systemd")
	}
	units, err := filepath.Glob(path("systemd", "*.service"))
	if err != nil || len(units) != 5 {
		t.Fatalf("%d units, %v", len(units), err)
	}
	root := t.TempDir()
	put := func(name string, data []byte, mode os.FileMode) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, mode); err != nil {
			t.Fatal(err)
		}
	}
	// Targets that the units name, which a root of systemd's has.
	for _, target := range []string{"network-online", "network", "sysinit", "basic", "shutdown", "multi-user"} {
		put("usr/lib/systemd/system/"+target+".target", []byte("[Unit]\nDescription="+target+"\n"), 0o644)
	}
	put("bin/kill", nil, 0o755)
	command := regexp.MustCompile(`(?m)^ExecStart=(\S+)`)
	environment := regexp.MustCompile(`(?m)^EnvironmentFile=/etc/slicer/(\S+)$`)
	for _, unit := range units {
		data, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		start, env := command.FindSubmatch(data), environment.FindSubmatch(data)
		if start == nil || env == nil {
			t.Fatalf("%s starts nothing, or by no file of flags", unit)
		}
		flags := strings.Fields(strings.ReplaceAll(read(t, "systemd", string(env[1])), `"`, " "))
		if port := httpPorts[filepath.Base(string(start[1]))]; port != 0 && !slices.Contains(flags, fmt.Sprintf("--http=:%d", port)) {
			t.Errorf("%s keeps --http to its machine, where Prometheus does not scrape it", unit)
		}
		put(string(start[1]), nil, 0o755)
		put("etc/slicer/"+string(env[1]), []byte(read(t, "systemd", string(env[1]))), 0o644)
		put("etc/systemd/system/"+filepath.Base(unit), data, 0o644)
	}
	for _, unit := range units {
		name := filepath.Base(unit)
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--root="+root, name).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != "" {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		out, err = exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=yes", "--no-pager", "--root="+root, name).CombinedOutput()
		said := regexp.MustCompile(`Overall exposure level for \S+: ([0-9.]+)`).FindSubmatch(out)
		if err != nil || said == nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if level, err := strconv.ParseFloat(string(said[1]), 64); err != nil || level > maxExposure {
			t.Errorf("%s: exposure %s, at most %v is allowed", name, said[1], maxExposure)
		}
		t.Logf("%s", said[0])
	}
}

// TestUnitsCanFail: the analyser finds what is wrong.
func TestUnitsCanFail(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not installed: apt-get install systemd")
	}
	unit := filepath.Join(t.TempDir(), "wrong.service")
	text := strings.Replace(read(t, "systemd", "slicer-assigner.service"), "ProtectSystem=", "ProtectSystems=", 1)
	if err := os.WriteFile(unit, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); !strings.Contains(string(out), "ProtectSystems") {
		t.Errorf("a wrong line is not found:\n%s", out)
	}
}
