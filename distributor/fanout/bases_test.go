package fanout

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

func TestBasesAreBounded(t *testing.T) {
	now := time.UnixMilli(baseGen)
	var b Bases
	asked := 0
	for i := range 100 {
		_, news := b.Wait(now, Version{1, assignment.Generation(i + 1)}, 7, 100)
		if news {
			asked++
		}
	}
	if asked != maxBases || len(b) != maxBases || len(b.Requests("x")) != maxBases || len(b.Requests("x")) != 0 {
		t.Errorf("%d are asked for", asked)
	}
	if wait, news := b.Wait(now, Version{1, 1}, 7, 1); !wait || news {
		t.Error("one that is asked for is not waited for")
	}
	if wait, _ := b.Wait(now, Version{1, 1}, 8, 1); wait {
		t.Error("one with another checksum is waited for")
	}
	now = now.Add(BaseWithin)
	if wait, _ := b.Wait(now, Version{1, 1}, 7, 100); wait {
		t.Error("one is waited for for ever")
	}
	if _, expired := b.Expire(now); !expired {
		t.Error("nothing has expired")
	}
	if wait, news := b.Wait(now, Version{1, 50}, 7, 100); !wait || !news {
		t.Error("nothing is asked for after what was asked for is settled")
	}
}
