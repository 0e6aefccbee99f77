package loadbalance

// MostNew reports whether most of the tasks of a round are new.
func MostNew(in Input) bool { return mostNew(in.Tasks, in.Ages, settled(in.Config)) }

// RebalanceWithin is Rebalance with another bound than assignment.MaxOwnerships.
func RebalanceWithin(in Input, most int) Output { return rebalance(in, most) }
