// Package runtest is for tests of programs: processes of them, and certificates for
// their TLS flags.
package runtest

import (
	"testing"

	"github.com/slicer-project/slicer/assignment/certs/certstest"
)

// Authority signs certificates for the TLS flags. Its files last as long as the test.
type Authority = certstest.Authority

// NewAuthority makes one.
func NewAuthority(t *testing.T, name string) *Authority { return certstest.NewAuthority(t, name) }
