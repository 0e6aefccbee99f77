package fanout

import (
	"cmp"
	"slices"
	"time"

	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

const (
	// maxNamed is how many clients one message to an assigner names: with the
	// longest names some 600 KB.
	maxNamed = 4096
	// MaxIndex is the highest client index that is believed.
	MaxIndex = 1<<24 - 1
)

// clients are the clerks of one job that are connected, and the indexes by which they
// pick their subsets of tasks. The preferred assigner gives the indexes; the Distributor
// tells it which clients are there, and passes on what it says. Nothing is lost with the
// Distributor: the clerks bring their indexes along.
type clients struct {
	byID map[string]*client
	// added are the clients that have come and that the assigner has not been told
	// of, gone those that have left since it was told of them.
	added, gone map[string]struct{}
}

// client is one clerk, with one stream here or, for a moment, several.
type client struct {
	index   int // -1 if none
	since   time.Time
	streams map[uint64]struct{} // subscribers' numbers
	told    bool                // the assigner knows of it
}

func newClients() clients {
	return clients{byID: make(map[string]*client), added: make(map[string]struct{}), gone: make(map[string]struct{})}
}

// join enters a clerk's stream; index is what it says that it holds, or negative.
// The client stays the same until the stream leaves.
func (c *clients) join(now time.Time, by uint64, id string, index int) *client {
	k := c.byID[id]
	if k == nil {
		k = &client{index: -1, since: now, streams: make(map[uint64]struct{})}
		c.byID[id] = k
	}
	k.streams[by] = struct{}{}
	if k.index < 0 {
		k.index = index
	}
	c.added[id] = struct{}{}
	if _, gone := c.gone[id]; gone {
		k.told = true
		delete(c.gone, id)
	}
	return k
}

// leave takes a stream away, and reports whether it was the client's last. With remember
// the assigner is told of that.
func (c *clients) leave(by uint64, id string, remember bool) bool {
	k := c.byID[id]
	if k == nil {
		return false
	}
	delete(k.streams, by)
	if len(k.streams) > 0 {
		return false
	}
	delete(c.byID, id)
	delete(c.added, id)
	if remember && k.told {
		c.gone[id] = struct{}{}
	}
	return true
}

// grant gives a client an index, and returns the streams that are to be told.
func (c *clients) grant(id string, index uint32) map[uint64]struct{} {
	k := c.byID[id]
	if k == nil || index > MaxIndex {
		return nil
	}
	k.index = int(index)
	return k.streams
}

// take returns what the assigner is to be told: all clients, or what has changed. The
// first message is there even if there is nothing. Clients that hold an index come first,
// so that it is not given to one that holds none.
func (c *clients) take(now time.Time, job string, complete bool) []*slicerv1.Clients {
	var all []*slicerv1.Client
	names := c.added
	if complete {
		names = nil
		for id := range c.byID {
			all = append(all, c.said(now, id))
		}
	} else {
		for id := range c.gone {
			all = append(all, &slicerv1.Client{ClientId: id, Disconnected: true})
		}
	}
	for id := range names {
		all = append(all, c.said(now, id))
	}
	clear(c.added)
	clear(c.gone)
	slices.SortFunc(all, func(x, y *slicerv1.Client) int {
		return cmp.Or(cmp.Compare(indexed(y), indexed(x)), cmp.Compare(x.ClientId, y.ClientId))
	})
	var out []*slicerv1.Clients
	for first := true; first || len(all) > 0; first = false {
		n := min(len(all), maxNamed)
		out = append(out, &slicerv1.Clients{Job: job, Complete: complete && first, Clients: all[:n]})
		all = all[n:]
	}
	return out
}

// indexed is 1 for a client that holds an index.
func indexed(c *slicerv1.Client) int {
	if c.Index != nil {
		return 1
	}
	return 0
}

func (c *clients) said(now time.Time, id string) *slicerv1.Client {
	k := c.byID[id]
	k.told = true
	m := &slicerv1.Client{ClientId: id, AgeMs: max(now.Sub(k.since), 0).Milliseconds()}
	if k.index >= 0 {
		m.Index = new(uint32(k.index))
	}
	return m
}
