package loadbalance

// RebalanceWithin is Rebalance with another bound than assignment.MaxOwnerships.
func RebalanceWithin(in Input, most int) Output { return rebalance(in, most) }
