package assigner

import (
	"fmt"
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment/access"
)

// TestCreations: an identity that may have 100 jobs creates 200 at once and then 100 an hour,
// another one's are its own, and identities do not add up.
func TestCreations(t *testing.T) {
	var c creations
	const most = 100
	now := 5 * time.Hour
	made := 0
	create := func(id access.Identity) bool {
		if c.wait(now, id, most) > 0 {
			return false
		}
		c.count(now, id, most)
		return true
	}
	for create("a") {
		made++
	}
	if wait := c.wait(now, "a", most); made != 2*most || wait <= 0 || wait > time.Hour/most {
		t.Errorf("%d at once, then none for %s", made, wait)
	}
	if !create("b") {
		t.Error("another identity pays for it")
	}
	for range 10 * 3600 {
		now += time.Second
		if create("a") {
			made++
		}
	}
	if made < 2*most+10*most-1 || made > 2*most+10*most+1 {
		t.Errorf("%d in ten hours", made)
	}
	now += 5 * time.Hour
	for made = 0; create("a"); made++ {
	}
	if made != 2*most {
		t.Errorf("%d at once after five hours without one", made)
	}
	// One whose bound is lowered waits until it is below that.
	if wait := c.wait(now, "a", 1); wait < 198*time.Hour {
		t.Errorf("it waits for %s", wait)
	}
	for i := range 20 * maxCreators {
		now += time.Minute
		create(access.Identity(fmt.Sprint("x", i)))
	}
	if len(c.by) > maxCreators {
		t.Errorf("%d identities are remembered", len(c.by))
	}
}
