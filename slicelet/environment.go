package slicelet

import (
	"net"

	"github.com/slicer-project/slicer/assignment"
)

// Variables of the environment that stand in for what a Config leaves open. An
// orchestrator sets them for each replica of one and the same command line; POD_NAME and
// POD_IP are the usual names for what Kubernetes' downward API gives a container.
const (
	envTask    = "SLICER_TASK"    // the task's name
	envPodName = "POD_NAME"       // the same, where SLICER_TASK is not set
	envAddress = "SLICER_ADDRESS" // host:port that clients dial
	envPodIP   = "POD_IP"         // the host that clients dial, where SLICER_ADDRESS is not set
)

// fill takes the task's name and address from the environment, as far as the config does
// not say them. HOSTNAME does not count: whether clients can resolve it is not known.
func (c *Config) fill(getenv func(string) string) error {
	if c.Task == "" {
		for _, name := range []string{envTask, envPodName} {
			if c.Task = getenv(name); c.Task == "" {
				continue
			}
			if !assignment.ValidToken(c.Task, assignment.MaxNameLen) {
				return &assignment.FieldError{Field: name, Value: c.Task, Allowed: "1 to 253 printable ASCII characters without space or slash"}
			}
			break
		}
		if c.Task == "" {
			return &assignment.FieldError{Field: "task name", Value: "", Allowed: "1 to 253 printable ASCII characters without space or slash, in Config.Task or the environment's " + envTask + " or " + envPodName}
		}
	}
	host, port, err := net.SplitHostPort(c.Address)
	if c.Address != "" && (err != nil || !anyHost(host)) {
		return nil
	}
	if whole := getenv(envAddress); whole != "" {
		if host, port, err := net.SplitHostPort(whole); err != nil || anyHost(host) || port == "" || port == "0" {
			return &assignment.FieldError{Field: envAddress, Value: whole, Allowed: "host:port as clients dial it, not every interface (0.0.0.0, [::]) and not port 0"}
		}
		c.Address = whole
		return nil
	}
	if ip := getenv(envPodIP); ip != "" && c.Address != "" {
		if net.ParseIP(ip) == nil || anyHost(ip) {
			return &assignment.FieldError{Field: envPodIP, Value: ip, Allowed: "an IP address of one interface"}
		}
		c.Address = net.JoinHostPort(ip, port)
	}
	return nil
}

// anyHost reports whether a listener's host stands for all interfaces.
func anyHost(host string) bool { return host == "" || net.ParseIP(host).IsUnspecified() }
