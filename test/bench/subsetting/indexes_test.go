package subsetting

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
)

// TestIndexesOutliveTheControlPlane kills each part in turn, and in the end all: no index
// changes, and a client that comes gets the smallest that is free.
func TestIndexesOutliveTheControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane(t)
		defer p.close()
		p.putJob()
		var servers []*slicelet.Slicelet
		defer func() {
			for _, s := range servers {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		}()
		for i := range 10 {
			servers = append(servers, p.server(fmt.Sprint("server-", i)))
		}
		c := &crowd{plane: p, clerks: make(map[int]*clerk.Clerk), held: make(map[int]int)}
		defer func() {
			for n := range c.clerks {
				c.leave(n)
			}
		}()
		c.come(30)
		time.Sleep(time.Minute)
		c.check("at first", 30)

		// One of the two is preferred.
		for i, address := range []string{assigner1, assigner2} {
			p.stop(address)
			c.come(2)
			time.Sleep(time.Minute)
			c.check("without "+address, 30+2*(i+1))
			p.start(address)
			time.Sleep(time.Minute)
			c.check("with it again", 30+2*(i+1))
		}
		for _, address := range []string{distributor1, distributor2} {
			p.stop(address)
			time.Sleep(30 * time.Second)
			c.check("without "+address, 34)
			p.start(address)
			time.Sleep(30 * time.Second)
		}
		// A minute after a client has gone, and not before, its index is free.
		five := c.held[5]
		c.leave(5)
		time.Sleep(30 * time.Second)
		c.come(1)
		time.Sleep(time.Second)
		c.check("with one gone", 35)
		time.Sleep(time.Minute)
		c.come(1)
		time.Sleep(time.Second)
		c.check("with another in his place", 35)
		if got := c.held[c.next-1]; got != five {
			t.Errorf("the newest has index %d, want %d", got, five)
		}
		// With only the Backup Distributor all keep what they have; a new one makes do.
		for _, address := range []string{distributor1, distributor2, assigner1, assigner2} {
			p.stop(address)
		}
		time.Sleep(time.Minute)
		c.check("with the Backup Distributor alone", 35)
		c.come(1)
		time.Sleep(10 * time.Second)
		s := c.clerks[c.next-1].Subset()
		if index, known := s.Index(); known || s.Len() != 3 {
			t.Errorf("a new client has index %d, known: %v, and %d tasks", index, known, s.Len())
		}
		// All come back and learn the indexes from the clients that hold them.
		for _, address := range []string{assigner2, distributor2} {
			p.start(address)
		}
		time.Sleep(time.Minute)
		c.check("after all were dead", 36)
	})
}
