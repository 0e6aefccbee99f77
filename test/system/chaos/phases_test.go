//go:build system

package chaos

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/kit/process"
)

// phase is one kind of trouble. Its function brings it about, has it last for a
// time, ends it, and returns when what was hit is back.
type phase struct {
	name string
	run  func(b *bed, lasts time.Duration)
}

var phases = []phase{
	{"baseline", func(b *bed, lasts time.Duration) { time.Sleep(lasts) }},
	{"kill preferred assigner", func(b *bed, lasts time.Duration) { kill(b, lasts, b.preferred()) }},
	{"kill distributor", func(b *bed, lasts time.Duration) { kill(b, lasts, one(b, b.distributors)) }},
	{"kill etcd member", func(b *bed, lasts time.Duration) { kill(b, lasts, one(b, b.etcds)) }},
	{"kill backup distributor", func(b *bed, lasts time.Duration) { kill(b, lasts, b.backups...) }},
	{"kill a server", func(b *bed, lasts time.Duration) { b.killServers(lasts, b.servers[b.rng.IntN(singles)]) }},
	{"kill 6 servers at once", func(b *bed, lasts time.Duration) {
		b.killServers(lasts, b.servers[b.rng.IntN(singles)], b.servers[singles+b.rng.IntN(crowds)])
	}},
	{"stop preferred assigner", func(b *bed, lasts time.Duration) { stop(b, lasts, b.preferred()) }},
	{"stop distributor", func(b *bed, lasts time.Duration) { stop(b, lasts, one(b, b.distributors)) }},
	{"stop etcd member", func(b *bed, lasts time.Duration) { stop(b, lasts, one(b, b.etcds)) }},
	{"stop backup distributor", func(b *bed, lasts time.Duration) { stop(b, lasts, b.backups...) }},
	{"stop 6 servers", func(b *bed, lasts time.Duration) {
		b.stopGroups(lasts, b.servers[b.rng.IntN(singles)], b.servers[singles+b.rng.IntN(crowds)])
	}},
	{"stop 3 clients", func(b *bed, lasts time.Duration) { b.stopGroups(lasts, b.clients[b.rng.IntN(clientProcesses)]) }},
	{"server | distributors", func(b *bed, lasts time.Duration) { b.mute(lasts, both) }},
	{"server > distributors", func(b *bed, lasts time.Duration) { b.mute(lasts, there) }},
	{"distributors > server", func(b *bed, lasts time.Duration) { b.mute(lasts, back) }},
	{"client | server", func(b *bed, lasts time.Duration) { b.cutClients(lasts, both) }},
	{"client > server", func(b *bed, lasts time.Duration) { b.cutClients(lasts, there) }},
	{"server > client", func(b *bed, lasts time.Duration) { b.cutClients(lasts, back) }},
	{"assigner | etcd", func(b *bed, lasts time.Duration) {
		b.cut(lasts, both, []string{b.preferred().Name}, names(b.etcds))
	}},
	{"assigner > etcd", func(b *bed, lasts time.Duration) {
		b.cut(lasts, there, []string{b.preferred().Name}, names(b.etcds))
	}},
	{"etcd > assigner", func(b *bed, lasts time.Duration) {
		b.cut(lasts, back, []string{b.preferred().Name}, names(b.etcds))
	}},
	// These last longer: it takes up to 10 s until either side gives the other up.
	{"distributor | assigners", func(b *bed, lasts time.Duration) {
		b.cut(2*lasts, both, []string{one(b, b.distributors).Name}, names(b.assigners))
	}},
	{"distributor > assigners", func(b *bed, lasts time.Duration) {
		b.cut(2*lasts, there, []string{one(b, b.distributors).Name}, names(b.assigners))
	}},
	{"assigners > distributor", func(b *bed, lasts time.Duration) {
		b.cut(2*lasts, back, []string{one(b, b.distributors).Name}, names(b.assigners))
	}},
	{"preferred assigner | 2 distributors", func(b *bed, lasts time.Duration) {
		b.cut(2*lasts, both, []string{b.preferred().Name}, names(b.distributors[:2]))
	}},
	{"preferred assigner | distributors", func(b *bed, lasts time.Duration) {
		b.cut(lasts, both, []string{b.preferred().Name}, names(b.distributors))
	}},
	{"etcd without quorum", func(b *bed, lasts time.Duration) { kill(b, lasts, b.etcds[0], b.etcds[1]) }},
	{"clock an hour ahead", func(b *bed, lasts time.Duration) { b.step(lasts, time.Hour) }},
	{"clock an hour behind", func(b *bed, lasts time.Duration) { b.step(lasts, -time.Hour) }},
	{"clock three days ahead", func(b *bed, lasts time.Duration) { b.step(lasts, 72*time.Hour) }},
	{"drain of 5 servers", func(b *bed, lasts time.Duration) {
		g := b.servers[singles]
		b.drain(g)
		time.Sleep(lasts / 2)
		b.start(g)
		time.Sleep(lasts / 2)
	}},
	{"rolling restart of 20 servers", func(b *bed, _ time.Duration) { b.rolling() }},
	{"all of Slicer killed", func(b *bed, lasts time.Duration) {
		var all []*process.Process
		for _, ps := range [][]*process.Process{b.assigners, b.distributors, b.backups, b.etcds} {
			all = append(all, ps...)
		}
		kill(b, lasts, all...)
	}},
	{"calm after all", func(b *bed, lasts time.Duration) { time.Sleep(lasts) }},
}

func one(b *bed, ps []*process.Process) *process.Process { return ps[b.rng.IntN(len(ps))] }

// How much of a phase the trouble lasts; the rest is its aftermath.
func trouble(lasts time.Duration) time.Duration   { return lasts * 6 / 10 }
func aftermath(lasts time.Duration) time.Duration { return lasts - trouble(lasts) }

func kill(b *bed, lasts time.Duration, ps ...*process.Process) {
	for _, p := range ps {
		b.t.Logf("%s: kill %s", b.now, p.Name)
		p.Kill()
	}
	time.Sleep(trouble(lasts))
	for _, p := range ps {
		p.Restart()
	}
	time.Sleep(aftermath(lasts))
}

func stop(b *bed, lasts time.Duration, ps ...*process.Process) {
	for _, p := range ps {
		b.t.Logf("%s: stop %s", b.now, p.Name)
		p.Stop()
	}
	time.Sleep(trouble(lasts))
	for _, p := range ps {
		p.Continue()
	}
	time.Sleep(aftermath(lasts))
}

func (b *bed) killServers(lasts time.Duration, gs ...*group) {
	for _, g := range gs {
		b.t.Logf("%s: kill %s", b.now, g.Name)
		begins(b.world.Down, g.names...)
		g.Kill()
	}
	time.Sleep(trouble(lasts))
	for _, g := range gs {
		b.start(g)
	}
	time.Sleep(aftermath(lasts))
	b.settled(time.Minute)
}

// start starts a server process that is down.
func (b *bed) start(g *group) {
	since := boottime.Now()
	g.Restart()
	at := g.comes(b.t, since)
	for _, n := range g.names {
		spans := b.world.Down[n]
		spans[len(spans)-1].To = at
	}
}

// drain ends a server process as an operator would.
func (b *bed) drain(g *group) {
	b.t.Logf("%s: drain %s", b.now, g.Name)
	g.End(time.Minute)
	// It was up until it ended: a moment ago. Whatever it still owned then it did not serve.
	begins(b.world.Down, g.names...)
}

// rolling restarts the servers of a process of their own, some at a time.
func (b *bed) rolling() {
	const block = 4
	for i := 0; i < singles; i += block {
		var wg sync.WaitGroup
		for _, g := range b.servers[i : i+block] {
			b.t.Logf("%s: drain %s", b.now, g.Name)
			wg.Go(func() { g.End(time.Minute) })
		}
		wg.Wait()
		for _, g := range b.servers[i : i+block] {
			begins(b.world.Down, g.names...)
			b.start(g)
		}
		b.settled(time.Minute)
	}
}

func (b *bed) stopGroups(lasts time.Duration, gs ...*group) {
	var ends []func()
	for _, g := range gs {
		b.t.Logf("%s: stop %s", b.now, g.Name)
		ends = append(ends, begins(b.world.Down, g.names...))
		g.Stop()
	}
	time.Sleep(trouble(lasts))
	for i, g := range gs {
		g.Continue()
		ends[i]()
	}
	time.Sleep(aftermath(lasts))
	b.settled(time.Minute)
}

func names(ps []*process.Process) (out []string) {
	for _, p := range ps {
		out = append(out, p.Name)
	}
	return out
}

func hosts(gs []*group) (out []string) {
	for _, g := range gs {
		out = append(out, g.Name)
	}
	return out
}

// someServers are seven servers in three processes.
func (b *bed) someServers() []*group {
	i := b.rng.IntN(singles)
	return []*group{b.servers[i], b.servers[(i+1)%singles], b.servers[singles+b.rng.IntN(crowds)]}
}

// direction is whose packets are lost.
type direction int

const (
	both direction = iota
	there
	back
)

func (b *bed) lose(d direction, left, right []string, off bool) {
	for _, l := range left {
		for _, r := range right {
			if d != back {
				b.net.Lose(l, r, off)
			}
			if d != there {
				b.net.Lose(r, l, off)
			}
		}
	}
}

func (b *bed) cut(lasts time.Duration, d direction, left, right []string) {
	b.t.Logf("%s: %v and %v", b.now, left, right)
	b.lose(d, left, right, true)
	time.Sleep(trouble(lasts))
	b.lose(d, left, right, false)
	time.Sleep(aftermath(lasts))
	b.settled(time.Minute)
}

// mute cuts seven servers off from all Distributors.
func (b *bed) mute(lasts time.Duration, d direction) {
	servers := b.someServers()
	var tasks []string
	for _, s := range servers {
		tasks = append(tasks, s.names...)
	}
	end := begins(b.world.Mute, tasks...)
	defer end()
	b.cut(lasts, d, hosts(servers), names(b.distributors))
}

// cutClients cuts two processes of clients off from seven servers.
func (b *bed) cutClients(lasts time.Duration, d direction) {
	servers := b.someServers()
	i := b.rng.IntN(clientProcesses)
	clients := []*group{b.clients[i], b.clients[(i+1)%clientProcesses]}
	b.t.Logf("%s: %v and %v", b.now, hosts(clients), hosts(servers))
	var pairs []Pair
	for _, c := range clients {
		for _, s := range servers {
			for _, caller := range c.names {
				for _, task := range s.names {
					pairs = append(pairs, Pair{caller, task})
				}
			}
		}
	}
	end := begins(b.world.Apart, pairs...)
	b.lose(d, hosts(clients), hosts(servers), true)
	time.Sleep(trouble(lasts))
	b.lose(d, hosts(clients), hosts(servers), false)
	end()
	time.Sleep(aftermath(lasts))
}

// step steps the wall clock of the preferred assigner, kills a server so that it
// has something to do, and steps the clock back.
func (b *bed) step(lasts time.Duration, by time.Duration) {
	p := b.preferred()
	b.t.Logf("%s: %s", b.now, p.Name)
	if err := os.WriteFile(b.clock(p.Name), fmt.Append(nil, by), 0o600); err != nil {
		b.t.Fatal(err)
	}
	g := b.servers[b.rng.IntN(singles)]
	begins(b.world.Down, g.names...)
	g.Kill()
	time.Sleep(trouble(lasts))
	if err := os.Remove(b.clock(p.Name)); err != nil {
		b.t.Fatal(err)
	}
	b.start(g)
	time.Sleep(aftermath(lasts))
	b.settled(time.Minute)
}
