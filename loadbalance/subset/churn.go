package subset

// Churn says what a change of M, N or k does to the frontends' connections
// ("Reinventing Backend Subsetting at Google", section "The Previous Approach",
// Property: Connection churn). Frontends that exist only before or only after
// the change do not count, since churn is what the others suffer.
type Churn struct {
	Frontends int // frontends compared
	Held      int // their connections before the change
	Dropped   int // connections of before that are gone after
	Opened    int // connections of after that were not there before

	MostDropped int     // connections dropped by one frontend, at most
	Mean        float64 // dropped share of a frontend's connections, 0 to 1
	Worst       float64 // the same of the frontend that suffers most
}

// Compare measures the churn between the subsets of the same frontends before
// and after a change. A subset holds no task twice, and no negative ones.
func Compare(before, after [][]int) Churn {
	n := min(len(before), len(after))
	before, after = before[:n], after[:n]
	span := 0
	for _, subset := range before {
		for _, task := range subset {
			span = max(span, task+1)
		}
	}
	held := make([]int, span) // the frontend's number plus 1, where it held the task
	churn := Churn{Frontends: n}
	var dropped shares
	for m := range before {
		for _, task := range before[m] {
			held[task] = m + 1
		}
		kept := 0
		for _, task := range after[m] {
			if task < span && held[task] == m+1 {
				kept++
			}
		}
		lost := len(before[m]) - kept
		churn.Held += len(before[m])
		churn.Dropped += lost
		churn.Opened += len(after[m]) - kept
		churn.MostDropped = max(churn.MostDropped, lost)
		dropped.add(lost, len(before[m]))
	}
	s := dropped.stat()
	churn.Mean, churn.Worst = s.Mean, s.Worst
	return churn
}
