package serve

import "testing"

func TestDefaultDir(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	if dir, err := storeDir(""); dir != "/state/slicer" || err != nil {
		t.Errorf("%s, %v", dir, err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "/home/u")
	if dir, err := storeDir(""); dir != "/home/u/.local/state/slicer" || err != nil {
		t.Errorf("%s, %v", dir, err)
	}
}
