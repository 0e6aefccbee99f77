package planted

// Fault is one thing that the implementation does wrong on purpose.
type Fault struct {
	Name, Text string
	// Checks of the kit are about it, and find it.
	Checks []string
	// Also are those that find it since they cannot do without what is wrong.
	Also []string
}

// All stands for all checks.
const All = "*"

// Faults are those of a role.
func Faults(role string) []Fault {
	if role == "slicelet" {
		return sliceletFaults
	}
	return clerkFaults
}

var sliceletFaults = []Fault{
	{"no-incarnation", "the hello has incarnation 0", []string{"hello"}, []string{All}},
	{"new-incarnation", "each stream has an incarnation of its own", []string{"incarnation"}, []string{"resume", "keeps", "failover", "silence", "backup-return", "backup-behind", "unacknowledged", "unacknowledged-stays", "hostile", "drain"}},
	{"any-incarnation", "owns what is assigned to another incarnation of its name", []string{"other-incarnation"}, nil},
	{"forgets", "a hello names nothing as held", []string{"resume"}, []string{"failover"}},
	{"any-base", "applies a delta to whatever is held", []string{"delta-wrong-base"}, []string{"checksum", "checksum-delta"}},
	{"any-checksum", "does not compare checksums", []string{"checksum"}, []string{"checksum-delta"}},
	{"takes-older", "takes an older generation in place of a newer one", []string{"older"}, []string{"backup-behind"}},
	{"early-ack", "acknowledges an assignment before it is in use", []string{"ack-after-use"}, []string{"drain"}},
	{"slow-reports", "reports each second, whatever the Status says", []string{"report-interval"}, nil},
	{"counts", "reports how many requests there were, and not how many a second", []string{"load"}, []string{"misrouted"}},
	{"whole-space", "reports the load of the whole keyspace as one range", []string{"load"}, []string{"misrouted"}},
	{"misrouted-untold", "leaves out requests for keys of other tasks", []string{"misrouted"}, nil},
	{"drain-untold", "does not report that it drains", []string{"drain"}, nil},
	{"drained-early", "ends a drain before its clients know", []string{"drained"}, nil},
	{"no-lease", "owns in consistent mode what it is assigned", []string{"consistent"}, nil},
	{"no-backoff", "tries again at once", []string{"backoff"}, []string{"unknown-job", "name-taken", "retry-after-only"}},
	{"no-jitter", "waits as long as all others", []string{"jitter"}, nil},
	{"impatient", "returns before RetryAfter has passed", []string{"retry-after-only"}, nil},
	{"deaf", "stays with a server that is silent", []string{"silence"}, nil},
	{"reports-to-backup", "reports to a Backup Distributor", []string{"backup"}, nil},
	{"stays-unheard", "stays with a Distributor that the assigner does not hear", []string{"unacknowledged"}, nil},
	{"dies-of-unknown", "ends at a message that it does not know", []string{"unknown-fields"}, []string{"hostile"}},
	{"any-size", "does not compare the size of chunks with the trailer", []string{"size"}, nil},
	{"one-sequence", "all reports have one sequence", []string{"report-sequence"}, nil},
	{"unnamed-session", "opens a lease session without the task's name", []string{"lease"}, nil},
	{"serves-unclaimed", "owns what an open guard gives it before its claim is granted", []string{"lease"}, []string{"lease-refused"}},
	{"serves-refused", "takes a claim that was refused for one that is held", []string{"lease-refused"}, nil},
	{"serves-newest", "owns what the newest assignment gives it, under whatever guard", []string{"lease-generation"}, []string{"lease-fetch", "lease-change"}},
	{"fetches-newest", "fetches the newest assignment and not the guard's", []string{"lease-fetch"}, nil},
	{"any-fetch", "uses what Fetch has answered, whatever its generation", []string{"lease-fetch"}, nil},
	{"no-release", "keeps a guard that is recalled", []string{"lease-change"}, nil},
	{"breaks-first", "releases the guard before it has the bridge", []string{"lease-change"}, nil},
	{"serves-moving", "owns keys that move when it has released the guard", []string{"lease-change"}, nil},
	{"renews-late", "renews its session after the lease time", []string{"lease-renew"}, []string{"lease-change", "lease-generation", "lease-expiry", "lease-fetch", "lease-lost"}},
	{"outlives-lease", "owns after its lease time has passed", []string{"lease-expiry"}, []string{"lease-lost"}},
	{"ignores-lost", "goes on when its session is lost", []string{"lease-lost"}, []string{"lease-expiry"}},
}

var clerkFaults = []Fault{
	{"other-hash", "drops the highest bit of the hash, and not the lowest", []string{"hash"}, []string{All}},
	{"end-inclusive", "a slice has the key at its end", []string{"boundaries"}, nil},
	{"one-replica", "finds one owner of a slice", []string{"replicas"}, []string{"delta", "draining", "draining-other"}},
	{"first-replica", "sends all requests to the first owner", []string{"replicas"}, []string{"draining", "draining-other"}},
	{"sends-to-draining", "does not regard that a task drains", []string{"draining"}, []string{"draining-other"}},
	{"drains-forever", "remembers the conditions of earlier Statuses", []string{"draining-other"}, nil},
	{"gives-up", "does not try again after NOT_FOUND", []string{"unknown-job"}, nil},
	{"no-backup", "does not use Backup Distributors", []string{"backup"}, []string{"backup-return", "backup-behind"}},
	{"stays-at-backup", "keeps the stream to the Backup Distributor", []string{"backup-return"}, nil},
	{"drops", "has no assignment while there is no stream", []string{"keeps"}, []string{"resume", "failover", "silence", "backup-return", "backup-behind"}},
	{"refuses-deltas", "refuses every delta", []string{"delta"}, []string{"ack-after-use", "large", "delta-wrong-base", "unknown-fields", "resume", "failover", "older", "backup", "draining", "unacknowledged-stays"}},
	{"loses-index", "does not say its client index", []string{"client-index"}, nil},
	{"reports", "sends reports", []string{"reports-not"}, nil},
	{"any-whole-size", "does not compare what compressed chunks become with the trailer", []string{"compressed"}, nil},
	{"any-job", "takes the assignment of another job", []string{"other-job"}, nil},
	{"one-store", "does not regard the store id", []string{"other-store"}, nil},
	{"two-streams", "streams from all Distributors", []string{"one-stream"}, []string{"failover", "retry-after", "silence", "keepalive"}},
	{"mute", "does not tell that it refuses", []string{"checksum"}, []string{"checksum-delta", "delta-wrong-base", "hostile", "lists", "other-job", "size"}},
	{"breaks-off", "forgets chunks when another message comes between them", []string{"chunks"}, nil},
}
