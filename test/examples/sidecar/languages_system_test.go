//go:build system

package sidecar

import "testing"

// TestNode: with servers in JavaScript.
func TestNode(t *testing.T) {
	scenario(t, func(port string) []string { return []string{"node", "server.js", port} })
}

// TestPython: with servers in Python.
func TestPython(t *testing.T) {
	scenario(t, func(port string) []string { return []string{"python3", "server.py", port} })
}
