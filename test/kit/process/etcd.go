package process

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// Etcd says where the members of an etcd are, one address of each kind for each.
type Etcd struct {
	// Dir is what the members' data directories are made in.
	Dir string
	// Clients and Peers are where members listen.
	Clients, Peers []string
	// Command is how argv is run at a member's host; nil for as it stands.
	Command func(member string, argv ...string) []string
	// Flags are added to each member's.
	Flags []string
}

// Member is the name of the i-th member.
func Member(i int) string { return fmt.Sprintf("etcd-%d", i) }

// Start starts all members. BuildSlicer has built the program. It does not wait
// until they have a leader.
func (e Etcd) Start(t testing.TB) (members []*Process) {
	t.Helper()
	var initial []string
	for i, p := range e.Peers {
		initial = append(initial, fmt.Sprintf("%s=http://%s", Member(i), p))
	}
	for i := range e.Peers {
		name := Member(i)
		argv := append([]string{Program("etcd"), "--name", name, "--data-dir", filepath.Join(e.Dir, name),
			"--listen-peer-urls", "http://" + e.Peers[i], "--initial-advertise-peer-urls", "http://" + e.Peers[i],
			"--listen-client-urls", "http://" + e.Clients[i], "--advertise-client-urls", "http://" + e.Clients[i],
			"--initial-cluster", strings.Join(initial, ",")}, e.Flags...)
		if e.Command != nil {
			argv = e.Command(name, argv...)
		}
		members = append(members, Start(t, name, nil, argv...))
	}
	return members
}
