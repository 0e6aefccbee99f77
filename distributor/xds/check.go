package xds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slicer-project/slicer/assignment"
	xdsv3 "github.com/slicer-project/slicer/proto/xds/v3"
)

// Bounds of what clients say.
const (
	maxRequest = 1 << 20 // bytes of a message
	maxNodeID  = 256     // bytes
	maxNames   = 4096    // of one type on one stream
	maxName    = 512     // bytes
	maxJobs    = 32      // on one stream
	maxText    = 512     // bytes kept of why a client refuses
)

// introduction is what a client says of itself.
type introduction struct {
	name   string // as logs and stragglers call it
	number uint64 // by which its tasks are chosen
	flavor
}

// checkNode validates what the first request says of its client. host is where the client
// is: several may have been given one id. Errors are INVALID_ARGUMENT.
func checkNode(n *xdsv3.Node, host string) (introduction, error) {
	id := n.GetId()
	if id == "" || len(id) > maxNodeID || strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' }) {
		if len(id) > maxNodeID {
			id = fmt.Sprintf("%d bytes", len(id))
		}
		return introduction{}, invalid("node", &assignment.FieldError{
			Field: "id", Value: id, Allowed: fmt.Sprintf("1 to %d printable ASCII characters without space: the node's id in the client's bootstrap file", maxNodeID)})
	}
	return introduction{
		name:   "xds-clerk " + strings.ReplaceAll(id, "/", "_"),
		number: xxhash.Sum64String(id + " " + host),
		flavor: flavorOf(n.GetUserAgentName(), n.GetUserAgentVersion()),
	}, nil
}

// firstRingCore is the first version of gRPC's C-core that is given ring hashes. 1.51, which
// Debian 12 has, dies of them.
const firstRingCore = 60

// flavorOf is that of a client by its agent's name and version, as its library sets them:
// "gRPC C-core linux" and "C-core 1.51.1", say.
func flavorOf(agent, version string) flavor {
	switch {
	case strings.Contains(agent, "Node"):
		return flavor{ring, byRange}
	case !strings.Contains(agent, "C-core"):
		return flavor{ring, byExpression}
	}
	_, v, _ := strings.Cut(version, "C-core ")
	if v == "" {
		v = version
	}
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(minor)
	if major == "1" && err == nil && n >= firstRingCore {
		return flavor{ring, byShortExpression}
	}
	return flavor{turns, byShortExpression}
}

// checkRequest validates a request. now bounds the generation that is believed. Errors are
// gRPC statuses.
func checkRequest(m *xdsv3.DiscoveryRequest, now time.Time) (request, error) {
	k := kind(slices.Index(typeURLs[:], m.GetTypeUrl()))
	switch {
	case k < 0:
		return request{}, invalid("request", &assignment.FieldError{
			Field: "type_url", Value: assignment.Clip(m.GetTypeUrl(), maxName), Allowed: "one of " + strings.Join(typeURLs[:], ", ")})
	case len(m.GetResourceNames()) > maxNames:
		return request{}, invalid("request", &assignment.FieldError{
			Field: "resource_names", Value: fmt.Sprintf("%d names", len(m.GetResourceNames())), Allowed: fmt.Sprintf("at most %d", maxNames)})
	}
	for i, name := range m.GetResourceNames() {
		if len(name) > maxName {
			return request{}, invalid("request", &assignment.FieldError{
				Field: fmt.Sprintf("resource_names[%d]", i), Value: fmt.Sprintf("%d bytes", len(name)), Allowed: fmt.Sprintf("at most %d", maxName)})
		}
	}
	r := request{kind: k, nonce: m.GetResponseNonce(), names: slices.Clone(m.GetResourceNames())}
	slices.Sort(r.names)
	r.names = slices.Compact(r.names)
	if g, err := strconv.ParseInt(m.GetVersionInfo(), 10, 64); err == nil && g > 0 && g <= now.Add(assignment.MaxAhead).UnixMilli() {
		r.version = assignment.Generation(g)
	}
	if e := m.GetErrorDetail(); e != nil {
		r.refused = assignment.Clip(strings.ToValidUTF8(e.GetMessage(), "?"), maxText)
		if r.refused == "" {
			r.refused = codes.Code(e.GetCode()).String()
		}
	}
	return r, nil
}

// jobOf is the job that a resource's name says it is of; false if no job can be called so.
func jobOf(name string) (string, bool) {
	job, _, _ := strings.Cut(name, "/")
	return job, assignment.ValidateJobName(job) == nil
}

func invalid(what string, err error) error {
	return status.Errorf(codes.InvalidArgument, "%s: %v", what, err)
}
