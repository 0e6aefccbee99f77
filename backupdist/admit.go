package backupdist

import (
	"net"
	"time"
)

// pingTimeout is how long a client may take to answer a ping, or to acknowledge what it
// was sent.
const pingTimeout = 10 * time.Second

// Admit returns a listener for the server that Register is called with to serve on in
// place of lis. It hands out connections no faster than they can be set up, those of
// different addresses in turn; those of which nothing has come wait apart from the
// others, 512 of each address and for 10 s. Its Close closes lis.
func (s *Server) Admit(lis net.Listener) net.Listener {
	return s.handshakes.Listener(lis, pingTimeout)
}
