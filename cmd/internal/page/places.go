package page

import (
	"fmt"
	"net/netip"
	"sync"
)

// places are what viewers have while they are sent news: at most MaxViewers in all, and at most
// MaxFromOne at one address. All methods are safe for concurrent use.
type places struct {
	mu    sync.Mutex
	taken int
	from  map[string]int // by address, of those that have some
}

func (p *places) take(from string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.taken >= MaxViewers:
		return fmt.Errorf("%d pages are being sent news, no more are allowed: close some", MaxViewers)
	case p.from[from] >= MaxFromOne:
		return fmt.Errorf("%d pages at your address are being sent news, no more are allowed: close some", MaxFromOne)
	}
	p.taken++
	p.from[from]++
	return nil
}

func (p *places) give(from string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.from[from]--; p.from[from] == 0 {
		delete(p.from, from)
	}
}

// addressOf is what counts as one address: without the port, and of an IPv6 address the first 64
// bits, as a machine may have any of the others.
func addressOf(remote string) string {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := a.Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		net, err := ip.Prefix(64)
		if err == nil {
			return net.String()
		}
	}
	return ip.String()
}
