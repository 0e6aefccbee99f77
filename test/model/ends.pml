/* What is done and asserted at the end of each step, and how it is known that a
 * change comes to its end. */

/* TWINS: which of the two slicelets is which is forgotten after each step: the
 * lesser one, in any order of all that can be said of them, becomes the first. They
 * are the same but for their number, the assigners and all that is asserted see them
 * alike, so two states that differ in their names have the same future. */
#ifdef TWINS
#define NAMES(x) (x.seen | (x.mayGuard << 8) | (x.askGuard << 10) | (x.dropGuard << 12) | (x.mayBridge << 14) | (x.askBridge << 18) | (x.dropBridge << 22))
#ifdef I2
#define UNBROKEN(x) (x.unbroken << 14)
#else
#define UNBROKEN(x) 0
#endif
#define REST(x) (x.live | (x.valid << 1) | (x.haveGuard << 2) | (x.haveBridge << 3) | (x.guardAnswered << 4) | (x.bridgeAnswered << 5) | \
	(x.oldGuard << 6) | (x.oldBridge << 7) | (x.guardKey << 8) | (x.bridgeKey << 10) | UNBROKEN(x))
hidden int first, second, spare;
#define SWAP(f) spare = one.f; one.f = two.f; two.f = spare
inline twins() {
	first = NAMES(one); second = NAMES(two);
	if
	:: first == second -> first = REST(one); second = REST(two)
	:: else
	fi;
	if
	:: first > second ->
		SWAP(live); SWAP(valid); SWAP(belief); SWAP(seen);
		SWAP(mayGuard); SWAP(haveGuard); SWAP(askGuard); SWAP(guardAnswered); SWAP(dropGuard);
		SWAP(mayBridge); SWAP(haveBridge); SWAP(askBridge); SWAP(bridgeAnswered); SWAP(dropBridge);
		SWAP(guardKey); SWAP(bridgeKey); SWAP(oldGuard); SWAP(oldBridge)
#ifdef I2
		; SWAP(unbroken)
#endif
	:: else
	fi;
	first = 0; second = 0; spare = 0
}
#define TIDY_UP twins()
#else
#define TIDY_UP skip
#endif

#ifdef I3
/* Once faults have stopped, a change ends: each step that is not a fault lowers a
 * rank, so there are finitely many; and where no such step is left, the last
 * generation is in force, and every live slicelet believes in it. Both are asserted
 * wherever faults may lead, so it does not matter when they stop, nor which of the steps
 * comes first. Who is dead may stay dead: to start counts with the faults.
 *
 * The rank, the heaviest part first: */
#define ROWS_LEFT (2 + 6 * (N - 1) - ROWS_DONE) /* transactions until the last generation is steady */
#define ROWS_DONE (GUARD(now) -> 2 + 6 * (GUARD(now) - 1) + THIS_CHANGE : (head -> 1 : 0))
#define THIS_CHANGE (!BRIDGE(now) -> head - GUARD(now) : (FROM(now) == GUARD(now) -> 3 - GUARD_OPEN(now) : -1 - BRIDGE_OPEN(now)))
#define TERM(x) (x.live -> 2 - x.valid : 0) /* out of time: renewed, or over */
/* then who has not seen what is stored: LOOKS; and messages, and what they lead to */
#define ASKS(ask, answered) (ask -> 2 - answered : 0)
#define MESSAGES(x) (4 * (ASKS(x.askGuard, x.guardAnswered) + ASKS(x.askBridge, x.bridgeAnswered)) \
	+ 2 * ((x.mayGuard != 0) + (x.mayBridge != 0)) + (x.dropGuard != 0) + (x.dropBridge != 0) + x.oldGuard + x.oldBridge) /* at most 24 */
#define TENURE (tenure -> 1 - SENT : 2) /* the job lease is to be taken, the records to be read */
#define RANK ((((ROWS_LEFT * 8 + TERM(one) + TERM(two)) * 4 + LOOKS(one) + LOOKS(two)) * 64 + MESSAGES(one) + MESSAGES(two)) * 4 + TENURE)
int rank, lower; /* as of the step before, and of this one */

#define BELIEVES(x) (!x.live || x.belief == BIT(N))
#define COMPLETE (head == N && now == REC(N, 1, 0, 0, 0) && BELIEVES(one) && BELIEVES(two))

inline after(fault) {
	lower = RANK;
	if
	:: fault || lower < rank
	:: else -> assert(false)
	fi;
	rank = lower; lower = 0;
	if
	:: COMPLETE || LEADER_GOES_ON || GOES_ON(one) || GOES_ON(two)
	:: else -> assert(false)
	fi;
	TIDY_UP
}
#define FORWARD after(false)
#define FAULT   after(true)
#else
#define FORWARD TIDY_UP
#define FAULT   TIDY_UP
#endif

#ifdef CALM
/* The same without a rank, which takes several times as long: at any moment faults
 * stop, and then there is no cycle (pan -l), and an end as above.
 *
 * Who is dead then, stays dead. COME_BACK has them come back too, which shows no
 * more: a slicelet comes back at most twice once faults have stopped, and all that
 * happens until the last time may as well happen before they stop. */
proctype Calm() {
progress: /* a run that goes round without end is wrong only after this */
#ifdef COME_BACK
	if
	:: d_step { calm = true; deadStay = true }
	:: calm = true
	fi;
#else
	calm = true;
#endif
	timeout ->
	assert(head == N && now == REC(N, 1, 0, 0, 0));
	assert(one.belief == BIT(N) || (!one.live && STAYS_DEAD));
	assert(two.belief == BIT(N) || (!two.live && STAYS_DEAD))
}
#endif
