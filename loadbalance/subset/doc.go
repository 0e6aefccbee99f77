// Package subset decides which backend tasks each frontend task connects to,
// when connecting every frontend to every backend would be too many
// connections: M frontend tasks, N backend tasks, k connections each.
//
// Every frontend computes its own subset from small shared facts: its number m (0 to
// M-1), the indexes of the backend tasks, and k. No frontend needs to know another's
// subset, and yet together they should have good properties, which are those of
// "Reinventing Backend Subsetting at Google" (Communications of the ACM 66(5), 2023; "the
// article" in this package):
//
//   - connection balance: backends have equally many connections ([Utilization]);
//   - subset diversity: no two frontends share a whole subset, and so a fate
//     ([Distinct]);
//   - low churn: when M, N or k changes, few connections are dropped ([Compare]);
//   - subset spread: a rolling restart, which takes neighbouring tasks down
//     together, takes little of any one subset ([Spread]).
//
// # Which algorithm
//
// Use [Rocksteadier]. It is sufficient in every respect and bad in none. The
// others are here because each is ideal in some respect, to compare with, and
// because the article builds the last from the first step by step. Measured
// over [ArticleGrid] (k = 20, N = 20 to 256, M = 1 to 256):
//
//	                           mean         distinct     dropped at  dropped at  dropped at  share in a
//	algorithm                  utilization  of 256       N to N+1    k-1 to k    M to M+1    tenth of N
//	random                     .65          256          .37         0           0           .25
//	rendezvous                 .66          256          .01         0           0           .24
//	round-robin                1            N/gcd(k, N)  .63         .78         0           .71
//	deterministic-dropped      .94          256          .32         .39         0           .25
//	deterministic-balanced     .98          3 to 256     .58         .70         0           .25
//	consistent                 .67          below N      .01         0           0           .25
//	ringsteady-raw             .95          N            .01         0           0           .16
//	ringsteady-backend-scaled  .96          N            .02         0           0           .16
//	ringsteady-both-scaled     1            N            .02         0           .04         .16
//	rocksteadier               .945         256          .01         0           0           .18
//
// (Distinct subsets are for N of 30 or more, as few exist with N close to k; the
// share in a tenth is for N of 2k or more. Scaling both sides, the unluckiest
// frontend drops everything when a frontend is added.)
// [Grid.Summarize] computes such a row.
//
// # How to use it
//
// Task indexes are dense: a control plane gives each new task the smallest free
// one. Describe the job's tasks with [Dense], or with [Present] if some are
// missing, and ask for a subset:
//
//	s := subset.Shape{Backends: subset.Dense(55), Size: 8}
//	tasks, err := subset.Rocksteadier{}.Append(nil, s, myNumber)
//
// # What it promises
//
// The package is pure: no clock, no goroutine, no I/O, no global state and no
// randomness but what follows from the arguments. All types are values that
// goroutines may share. Subsets never hold a task twice, nor one that is not
// there; with k of N or more they hold all N. Algorithms allocate nothing but
// the result, and not that if they are given the room.
//
// Subsets are stable across versions of this package: processes of different
// versions must agree, so the generator and the shuffle are frozen, and golden
// tests guard every algorithm's output.
package subset
