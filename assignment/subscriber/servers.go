package subscriber

import (
	"strings"

	"github.com/slicer-project/slicer/assignment"
)

// SplitServer takes apart an element of Config.Distributors or Config.Backups: HOST:PORT, or
// ZONE=HOST:PORT, whose zone may be empty too.
func SplitServer(server string) (zone, addr string) {
	if i := strings.LastIndexByte(server, '='); i >= 0 {
		return server[:i], server[i+1:]
	}
	return "", server
}

// addresses are those of servers, and near those of them that are in a zone; none is in the
// zone "".
func addresses(servers []string, zone string) (addrs, near []string) {
	for _, s := range servers {
		z, addr := SplitServer(s)
		addrs = append(addrs, addr)
		if zone != "" && z == zone {
			near = append(near, addr)
		}
	}
	return addrs, near
}

func validZone(zone string) bool {
	return zone == "" || assignment.ValidToken(zone, assignment.MaxZoneLen)
}
