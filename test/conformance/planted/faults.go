package planted

// Fault is one thing that the implementation does wrong on purpose.
type Fault struct {
	Name, Text string
	// Checks of the kit that find it.
	Checks []string
}

// Faults are those of a role.
func Faults(role string) []Fault {
	if role == "slicelet" {
		return sliceletFaults
	}
	return clerkFaults
}

var sliceletFaults = []Fault{
	{"no-incarnation", "the hello has incarnation 0", []string{"hello"}},
	{"new-incarnation", "each stream has an incarnation of its own", []string{"incarnation"}},
	{"any-incarnation", "owns what is assigned to another incarnation of its name", []string{"other-incarnation"}},
	{"forgets", "a hello names nothing as held", []string{"resume"}},
	{"any-base", "applies a delta to whatever is held", []string{"delta-wrong-base"}},
	{"any-checksum", "does not compare checksums", []string{"checksum"}},
	{"takes-older", "takes an older generation in place of a newer one", []string{"older"}},
	{"early-ack", "acknowledges an assignment before it is in use", []string{"ack-after-use"}},
	{"slow-reports", "reports each second, whatever the Status says", []string{"report-interval"}},
	{"counts", "reports how many requests there were, and not how many a second", []string{"load"}},
	{"whole-space", "reports the load of the whole keyspace as one range", []string{"load"}},
	{"misrouted-untold", "leaves out requests for keys of other tasks", []string{"misrouted"}},
	{"drain-untold", "does not report that it drains", []string{"drain"}},
	{"drained-early", "ends a drain before its clients know", []string{"drained"}},
	{"no-lease", "owns in consistent mode what it is assigned", []string{"consistent"}},
	{"no-backoff", "tries again at once", []string{"backoff"}},
	{"no-jitter", "waits as long as all others", []string{"jitter"}},
	{"impatient", "returns before RetryAfter has passed", []string{"retry-after-only"}},
	{"deaf", "stays with a server that is silent", []string{"silence"}},
	{"reports-to-backup", "reports to a Backup Distributor", []string{"backup"}},
	{"stays-unheard", "stays with a Distributor that the assigner does not hear", []string{"unacknowledged"}},
	{"dies-of-unknown", "ends at a message that it does not know", []string{"unknown-fields"}},
	{"any-size", "does not compare the size of chunks with the trailer", []string{"size"}},
	{"one-sequence", "all reports have one sequence", []string{"report-sequence"}},
}

var clerkFaults = []Fault{
	{"other-hash", "drops the highest bit of the hash, and not the lowest", []string{"hash"}},
	{"end-inclusive", "a slice has the key at its end", []string{"boundaries"}},
	{"one-replica", "finds one owner of a slice", []string{"replicas"}},
	{"first-replica", "sends all requests to the first owner", []string{"replicas"}},
	{"sends-to-draining", "does not regard that a task drains", []string{"draining"}},
	{"drains-forever", "remembers the conditions of earlier Statuses", []string{"draining-other"}},
	{"gives-up", "does not try again after NOT_FOUND", []string{"unknown-job"}},
	{"no-backup", "does not use Backup Distributors", []string{"backup"}},
	{"stays-at-backup", "keeps the stream to the Backup Distributor", []string{"backup-return"}},
	{"drops", "has no assignment while there is no stream", []string{"keeps"}},
	{"refuses-deltas", "refuses every delta", []string{"delta"}},
	{"loses-index", "does not say its client index", []string{"client-index"}},
	{"reports", "sends reports", []string{"reports-not"}},
	{"any-job", "takes the assignment of another job", []string{"other-job"}},
	{"one-store", "does not regard the store id", []string{"other-store"}},
	{"two-streams", "streams from all Distributors", []string{"one-stream"}},
	{"mute", "does not tell that it refuses", []string{"checksum"}},
	{"breaks-off", "forgets chunks when another message comes between them", []string{"chunks"}},
}
