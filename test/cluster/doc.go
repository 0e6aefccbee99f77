// Package cluster is a whole Slicer on virtual time: assigners, Distributors, Backup
// Distributors, slicelets and clerks, made of the code that runs in production, in one process
// without sockets or sleep. A seeded network delays and holds up what they say to one another,
// cuts them off, one way or both, and breaks their connections or loses what is on them; calls
// overtake one another, come late, or are carried out with the answer lost. Processes are
// killed and start again, machines stop for a while or vanish without a word, wall clocks
// jump, hot keys move, an operator freezes the job, excludes a task or pins keys. Now and then
// all Distributors die at once, with all assigners or without, or clerks do not reach them.
// Users ask clerks for a few keys, at once for many times what a task can do, of one
// criticality or all; tasks become slow or full, and some clerks know neither levels nor
// budgets and send again whatever failed. Tasks and the other clerks decide by package
// overload; a task is one core, and half of them have handlers that wait for a pool.
// Two customers of the job have limits, which change: one asks for less than its own, the other now
// and then for many times as much. Some requests have no key. Tasks drain, also in floods.
// After each event it is checked that
//
//   - generations grow: those stored, and those at each subscriber, whatever serves it;
//   - what a part holds as a generation is what was stored as that generation;
//   - every stored assignment gives every key to a task that ran as far as its assigner
//     could know;
//   - no task that is dead, and stored as dead, owns anything ever again;
//   - no task that is dead owns anything any more ten seconds later, or 40 when most of
//     the tasks are missed, if the assigner, its store and its Distributors have run and
//     reached each other for as long;
//   - a balancing round moves no more than its budgets;
//   - when most of the tasks vanish at once, none is declared dead for a while, or until
//     most are back, and none loses slices;
//   - while an operator has the job frozen nothing is written; a task that is excluded
//     owns nothing, and keys that are pinned to a task that runs are its alone;
//   - a subscriber that no Distributor serves has the newest stored assignment from a
//     Backup Distributor, even if it has just started;
//   - no task that lives is stored as dead, as long as there is a Distributor that it can
//     reach and that can reach the assigner in charge, whichever it is connected to;
//   - no request is refused while one that is less critical is let in behind as much, with as
//     little time, at the same moment; and in a flood a task refuses no larger share of what is
//     more critical in the moments between its Ticks, but for chance;
//   - ten seconds after a task is asked for less than .8 of what it can do nothing critical
//     is refused in its name, by it or by a clerk that holds requests back, and of less than
//     .5 nothing at all. A clerk that it has told to send trial requests rarely takes 15 s;
//   - where nothing else goes wrong with a task whose core is flooded it answers in time at
//     least .8 of what it could, had it to do nothing but to refuse the rest, until the flood
//     is over or it drains;
//   - a clerk with a budget sends again at most a tenth of its requests of ten seconds, or ten;
//   - a customer that asks for more than its limit gets .8 to 1.1 of it, and one that asks for less
//     than .8 is refused a tenth of what is above SHEDDABLE at most (in the mean a hundredth), in
//     every 5 s that begin 6 s after something has changed of its tasks, their Distributors, or what
//     it asks for; also while no Distributor or assigner runs, for 28 s. What is beyond a limit
//     counts in the bounds above only as what it costs to refuse it;
//   - a clerk that knows that a task drains sends it nothing that another could take, and all know it
//     within two seconds;
//   - a task that has drained ends when all that are connected know where its slices have moved, and
//     nothing is sent to it any more before it is back; then none takes it for one that drains;
//
// and after a minute and a half without faults, that every subscriber that lives holds
// the newest generation and has it from a Distributor, every task that runs owns
// something, and no other does.
//
//	go test ./test/cluster -run TestSeeds -seeds 1000
//
// runs a thousand seeds of six minutes each, a hundred hours. A seed that fails
// prints the command that repeats it: the same seed is the same run. The first is 1
// unless -seed says another, or 0 for one drawn from the clock.
//
//	go test ./test/cluster -run '^$' -bench Hours -benchtime 1x
//
// measures how many hours are simulated in a minute, and
//
//	go test -tags sabotage ./test/cluster -run TestPlanted -v
//
// plants bugs, each in a run of its own, and says which seed finds it.
package cluster
