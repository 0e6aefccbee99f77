package fanout

import (
	"testing"
	"time"

	"github.com/slicer-project/slicer/assignment"
)

func TestBasesAreBounded(t *testing.T) {
	now := time.UnixMilli(baseGen)
	var b bases
	asked := 0
	for i := range 100 {
		_, news := b.wait(now, Version{1, assignment.Generation(i + 1)}, 7, 100)
		if news {
			asked++
		}
	}
	if asked != maxBases || len(b) != maxBases || len(b.requests("x")) != maxBases || len(b.requests("x")) != 0 {
		t.Errorf("%d are asked for", asked)
	}
	if wait, news := b.wait(now, Version{1, 1}, 7, 1); !wait || news {
		t.Error("one that is asked for is not waited for")
	}
	if wait, _ := b.wait(now, Version{1, 1}, 8, 1); wait {
		t.Error("one with another checksum is waited for")
	}
	now = now.Add(BaseWithin)
	if wait, _ := b.wait(now, Version{1, 1}, 7, 100); wait {
		t.Error("one is waited for for ever")
	}
	if _, expired := b.expire(now); !expired {
		t.Error("nothing has expired")
	}
	if wait, news := b.wait(now, Version{1, 50}, 7, 100); !wait || !news {
		t.Error("nothing is asked for after what was asked for is settled")
	}
}
