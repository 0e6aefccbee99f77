package subset_test

import (
	"fmt"

	"github.com/slicer-project/slicer/loadbalance/subset"
)

// Task 13 of the frontends chooses 8 of 55 backend tasks; then backend task 21
// dies, and only its place is filled anew.
func Example() {
	var alg subset.Rocksteadier

	before, err := alg.Append(nil, subset.Shape{Backends: subset.Dense(55), Size: 8}, 13)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("before:", before)

	var alive []int
	for task := range 55 {
		if task != before[2] {
			alive = append(alive, task)
		}
	}
	backends, err := subset.Present(alive)
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := alg.Append(nil, subset.Shape{Backends: backends, Size: 8}, 13)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("after: ", after)

	// Output:
	// before: [13 37 3 44 29 11 54 32]
	// after:  [13 37 44 29 11 54 32 6]
}

// How do two algorithms take an 11th backend, with 5 frontends of 4 connections?
func ExampleCompare() {
	for _, name := range []string{"deterministic-balanced", "rocksteadier"} {
		alg, err := subset.ByName(name)
		if err != nil {
			fmt.Println(err)
			return
		}
		var subsets [2][][]int
		for i := range subsets {
			s := subset.Shape{Frontends: 5, Backends: subset.Dense(10 + i), Size: 4}
			if subsets[i], err = subset.Subsets(alg, s); err != nil {
				fmt.Println(err)
				return
			}
		}
		churn := subset.Compare(subsets[0], subsets[1])
		fmt.Printf("%s: %d of %d connections dropped, up to %d of one frontend\n",
			name, churn.Dropped, churn.Held, churn.MostDropped)
	}

	// Output:
	// deterministic-balanced: 14 of 20 connections dropped, up to 4 of one frontend
	// rocksteadier: 2 of 20 connections dropped, up to 1 of one frontend
}

func ExampleFieldError() {
	_, err := subset.Rocksteadier{}.Append(nil, subset.Shape{Backends: subset.Dense(55)}, 13)
	fmt.Println(err)

	// Output:
	// subset: Size is 0, want 1 or more
}
