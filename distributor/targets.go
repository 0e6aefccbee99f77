package distributor

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// lookupEvery is how often names are looked up again, lookupSoon while no
	// assigner is attached.
	lookupEvery = 30 * time.Second
	lookupSoon  = 3 * time.Second
	// lookupWithin bounds one lookup.
	lookupWithin = 5 * time.Second
)

// lookupFunc finds the addresses of a host.
type lookupFunc func(ctx context.Context, host string) ([]netip.Addr, error)

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// targets finds what host:port stands for: each address, and the name that it was
// found under. What cannot be looked up just now keeps the addresses it had.
type targets struct {
	lookup  lookupFunc
	known   map[string][]string          // host:port as written: addresses
	missed  func(name string, err error) // told of the first lookup in a row that fails
	missing map[string]bool              // what could not be looked up the last time
}

// resolve returns all addresses of the names.
func (t *targets) resolve(ctx context.Context, names []string) map[string]string {
	found := make(map[string]string)
	known := make(map[string][]string)
	missing := make(map[string]bool)
	for _, name := range names {
		host, port, err := splitHostPort(name)
		if err != nil {
			continue
		}
		addresses := t.known[name]
		if ip, err := netip.ParseAddr(host); err == nil {
			addresses = []string{net.JoinHostPort(ip.Unmap().String(), port)}
		} else if ips, err := t.addresses(ctx, host); err != nil {
			if missing[name] = true; !t.missing[name] {
				t.missed(name, err)
			}
		} else if len(ips) > 0 {
			addresses = nil
			for _, ip := range ips {
				addresses = append(addresses, net.JoinHostPort(ip.String(), port))
			}
		}
		known[name] = addresses
		for _, a := range addresses {
			if _, ok := found[a]; !ok {
				found[a] = name
			}
		}
	}
	t.known, t.missing = known, missing
	return found
}

// addresses are those of a host: of one family, since a process that listens on
// both has one address in each.
func (t *targets) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupWithin)
	defer cancel()
	all, err := t.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for i := range all {
		all[i] = all[i].Unmap()
	}
	v4 := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return !a.Is4() })
	if len(v4) > 0 {
		return v4, nil
	}
	return all, nil
}

// maintain keeps one link to each address that the configuration and the
// assigners name, and in the second tier to each assigner through them, until the
// Distributor closes.
func (d *Distributor) maintain(ctx context.Context) {
	t := targets{lookup: d.lookupHost, missed: func(name string, err error) {
		d.log.Warn("name not looked up, trying again", "name", name, "error", err)
		d.failed(name, err)
	}}
	links, relayed := make(map[string]*link), make(map[string]*link)
	defer func() {
		for _, l := range links {
			l.cancel()
		}
		for _, l := range relayed {
			l.cancel()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-d.candidates:
		case <-ctx.Done():
			return
		}
		wanted := t.resolve(ctx, d.names())
		for address, name := range wanted {
			if links[address] == nil {
				if l := d.startLink(ctx, address, name); l != nil {
					links[address] = l
				}
			}
		}
		for address, l := range links {
			if _, ok := wanted[address]; !ok && !d.attachedAt(address) {
				d.log.Info("address given up", "address", address)
				l.cancel()
				<-l.stopped
				delete(links, address)
			}
		}
		if d.secondTier() {
			d.maintainRelayed(ctx, relayed)
		}
		if d.attachedToAny() {
			timer.Reset(lookupEvery)
		} else {
			timer.Reset(lookupSoon)
		}
	}
}

func (d *Distributor) startLink(ctx context.Context, address, name string) *link {
	l, err := d.newLink(address, name)
	if err != nil {
		d.log.Error("address cannot be connected to", "address", address, "error", err)
		d.failed(address, err)
		return nil
	}
	d.startRun(ctx, l)
	return l
}
