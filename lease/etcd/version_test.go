package etcdlease

import (
	"errors"
	"testing"
)

func TestCheckVersion(t *testing.T) {
	for version, ok := range map[string]bool{
		"3.5.13": true, "3.5.14": true, "3.6.0": true, "3.7.3": true, "4.0.0": true, "3.6.0-rc.1": true, "3.10.0": true,
		"3.5.12": false, "3.4.99": false, "2.9.99": false, "": false, "3.5": false, "x.y.z": false, "3.5.-1": false, "3.5.13.1": false,
	} {
		err := checkVersion(version)
		if (err == nil) != ok || err != nil && !errors.Is(err, ErrVersion) {
			t.Errorf("%q: %v", version, err)
		}
	}
}
