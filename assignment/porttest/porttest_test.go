package porttest

import (
	"net"
	"strconv"
	"testing"
)

func TestFree(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		addrs, err := Free(2)
		if err != nil || len(addrs) != 2 {
			t.Fatal(addrs, err)
		}
		for _, a := range addrs {
			_, s, err := net.SplitHostPort(a)
			port, perr := strconv.Atoi(s)
			if err != nil || perr != nil || port < first || port >= end || seen[a] {
				t.Errorf("%s: %v, %v, given before: %t", a, err, perr, seen[a])
			}
			seen[a] = true
		}
	}
	// One that is taken is passed over.
	at := next.Load()
	addrs, err := Free(1)
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	next.Store(at)
	if again, err := Free(1); err != nil || again[0] == addrs[0] {
		t.Errorf("%v, %v", again, err)
	}
}
