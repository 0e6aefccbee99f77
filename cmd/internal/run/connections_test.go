package run_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicer-project/slicer/cmd/internal/run"
)

// Of the connections of one address to the HTTP port 64 stay, and any more are closed; others
// are served, and so are those that stay. One that ends makes room.
func TestConnectionsOfOneAddress(t *testing.T) {
	s, err := run.NewStatus("127.0.0.1:0", prometheus.NewRegistry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.3")}}
	dial := func() net.Conn {
		c, err := d.Dial("tcp", s.Where())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn) string {
		fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		line, _ := bufio.NewReader(c).ReadString('\n')
		return line
	}
	var all []net.Conn
	for range 100 {
		all = append(all, dial())
	}
	for i, c := range all {
		if line := ask(c); strings.Contains(line, "200") != (i < 64) {
			t.Errorf("connection %d is answered %q", i, line)
		}
	}
	if code, body := from(t, "127.0.0.1", "http://"+s.Where()+"/healthz"); code != 200 {
		t.Errorf("from another address: %d %.100q", code, body)
	}
	all[0].Close()
	for end := time.Now().Add(time.Minute); ; { // until the server has noticed
		if strings.Contains(ask(dial()), "200") {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a connection has ended and there is no room for another")
		}
	}
}
