/*
 * Consistent mode: the protocol by which a job's keys change hands without ever
 * having two owners. README.md beside this file says what is modelled, what is
 * checked and how to run it.
 *
 * Assigners (two) and slicelets (two) are processes, in files of their own; each
 * step of a process is one event with all that follows from it at once. What lies
 * between a message being sent, carried out and answered is a step each, so
 * messages are late, and lost, in every way there is.
 *
 * Keys are not in the model, because all of them are: a belief is the set of
 * generations in which a key must be one's own, and two slicelets believe in one
 * key of *some* assignments exactly if both sets hold something and they have
 * nothing in common. So a result holds for any contents of the assignments.
 */

/* UNTIDY keeps messages that change nothing any more: an acquire that can only
 * fail, an answer to what has been given up, a transaction whose token or records
 * are not those compared. Whoever has sent one can as well do nothing meanwhile, or
 * hear nothing, so there is nothing to see in the states that differ in no more. In
 * these variants such a message may do something. */
#if defined(ACQUIRE_BLIND) || defined(ACQUIRE_CLOSED) || defined(BELIEVE_ON) || defined(OLD_ANSWER)
#define UNTIDY
#endif
#ifndef N
#define N 3 /* generations: N-1 changes, one after the other */
#endif
#ifndef ASSIGNERS
#define ASSIGNERS 2
#endif
#define SLICELETS 2

/* Guard and bridge as one byte: the guard's generation and whether it is open,
 * the bridge's from and to (0: no bridge) and whether it is open. */
#define REC(g, go, f, t, bo) ((g) | ((go) << 2) | ((f) << 3) | ((t) << 5) | ((bo) << 7))
#define GUARD(r)       ((r) & 3)
#define GUARD_OPEN(r)  (((r) >> 2) & 1)
#define FROM(r)        (((r) >> 3) & 3)
#define TO(r)          (((r) >> 5) & 3)
#define BRIDGE_OPEN(r) ((r) >> 7)
#define BRIDGE(r)      (((r) >> 3) & 15) /* from and to together, as a bridge holder key has them */
#define B_FROM(b)      ((b) & 3)
#define B_TO(b)        ((b) >> 2)

/* The store. */
byte now; /* guard and bridge */
byte head;
byte tenure;           /* who has the job lease: 1 + number of the assigner, 0 nobody */
bool fresh[ASSIGNERS]; /* what it read is what is stored, and its token is the job lease's */

#ifdef CALM
bool calm; /* no more faults */
#else
#define calm false
#endif
#ifdef COME_BACK
bool deadStay; /* who is dead then, stays dead */
#define STAYS_DEAD (calm && deadStay)
#else
#define STAYS_DEAD calm
#endif

#ifdef BRIDGE_EARLY
/* Contents that a generation may have: that of the assigner which decided it. */
byte decided[N + 1];
#define BIT(g) (1 << ((g) - 1 + N * my.content[g]))
#else
#define BIT(g) (1 << ((g) - 1))
#endif

/* A slicelet, and its keys in the store. */
typedef Holder {
	bool live;                  /* it runs, and has a session */
	bool valid;                 /* its deadline has not passed */
	byte belief;                /* a set of generations; see above */
	byte seen;                  /* of guard and bridge, by the watch */
	byte mayGuard, mayBridge;   /* what it holds or may hold */
	bool haveGuard, haveBridge; /* it knows that it holds it */
	byte askGuard, askBridge;   /* acquire on its way, */
	bool guardAnswered, bridgeAnswered; /* or its answer */
	byte dropGuard, dropBridge; /* release on its way, sent until answered */
	byte guardKey, bridgeKey;   /* holder keys of its session, */
	bool oldGuard, oldBridge;   /* and of any before it whose leases still run */
#ifdef I2
	bool unbroken;
#endif
#if defined(DEADLINE_LATE) || defined(REVIVE)
	bool leased;
#endif
#ifdef BACK
	bool inCopy;                /* its session is in the copy of the store */
	bool ahead;                 /* it has seen or done what the copy does not have */
	bool lost;                  /* the store has gone back behind that */
	byte copyGuard, copyBridge; /* the copy's keys of its session, */
	bool copyOldGuard, copyOldBridge; /* and of those before it */
#endif
#ifdef LAST_HELD
	byte last;
#endif
#ifdef BRIDGE_EARLY
	bool fetched[N + 1];
	byte content[N + 1];
#endif
}
Holder slicelet[SLICELETS];
#define my  slicelet[s]
#define one slicelet[0]
#define two slicelet[1]
/* Something is on its way to it or from it, or will be. */
#define GOES_ON(x)  (LOOKS(x) || x.askGuard || x.askBridge || x.dropGuard || x.dropBridge || LAPSED(x) || x.oldGuard || x.oldBridge)
#define LOOKS(x)    (x.live && x.seen != now && CONTACT(x))
#define LAPSED(x)   (x.live && !x.valid)
#define GUARD_HELD  (one.guardKey || two.guardKey || one.oldGuard || two.oldGuard)
#define BRIDGE_HELD (one.bridgeKey || two.bridgeKey || one.oldBridge || two.oldBridge)

#ifdef TWO_LIVE /* both answer to the name that owns the key */
#define APART false
#else
#define APART (one.belief & two.belief)
#endif
#define I1 assert(!one.belief || !two.belief || APART)

#ifdef LOOK_BEFORE
#define GUARD_FREE  sawGuardFree
#define BRIDGE_FREE sawBridgeFree
#else
#define GUARD_FREE  (!GUARD_HELD)
#define BRIDGE_FREE (!BRIDGE_HELD)
#endif
#ifdef NO_WAIT
#define GUARD_MAY true
#else
#define GUARD_MAY GUARD_FREE
#endif
#ifdef CLOSE_NO_WAIT
#define CLOSE_MAY true
#else
#define CLOSE_MAY BRIDGE_FREE
#endif
#ifdef BRIDGE_NO_WAIT
#define BRIDGE_MAY true
#else
#define BRIDGE_MAY BRIDGE_FREE
#endif
#ifdef DELETE_OPEN
#define DONE_MAY CLOSE_MAY
#else
#define DONE_MAY true
#endif

/* The rows of the table: what the records say, and what the transaction compares beyond them. */
#define FIRST  (!GUARD(now) && !head)
#define BOOT   (!GUARD(now) && head)
#define STEADY (GUARD(now) && GUARD_OPEN(now) && !BRIDGE(now))
#ifdef BRIDGE_EARLY
#define BRIDGED (STEADY && head < N)
#define WRITE   (BRIDGE(now) && TO(now) > head)
#else
#ifdef TARGET_ANEW
#define WRITE   (GUARD(now) && head < N && head <= GUARD(now) + 1)
#else
#define WRITE   (STEADY && head == GUARD(now) && NEXT <= N)
#endif
#define BRIDGED (STEADY && head > GUARD(now))
#endif
#define RECALL (GUARD_OPEN(now) && BRIDGE_OPEN(now) && FROM(now) == GUARD(now))
#define REWRITE (GUARD(now) && !GUARD_OPEN(now))
#define DONE   (GUARD_OPEN(now) && BRIDGE_OPEN(now) && TO(now) == GUARD(now))
#define CLOSE  (GUARD_OPEN(now) && BRIDGE(now) && !BRIDGE_OPEN(now))
#ifdef TARGET_ANEW
#define TARGET head
#else
#define TARGET TO(now)
#endif

#define CALLED_FOR (FIRST || BOOT || WRITE || BRIDGED || RECALL || REWRITE || DONE || CLOSE)

#ifdef UNBOUNDED /* waits until each holder of the guard holds the bridge, however long */
#define CROSSED(x) (!x.guardKey || x.bridgeKey == BRIDGE(now))
#define RECALL_MAY (CROSSED(one) && CROSSED(two))
#else
#define RECALL_MAY true
#endif

#if ASSIGNERS > 1
#define SENT (fresh[0] || fresh[1])
#else
#define SENT fresh[0]
#endif

/* Somebody can take the job lease, read, or carry out what it has read. */
#define LEADER_GOES_ON (!tenure || (!SENT && CALLED_FOR) || (SENT && ( \
	FIRST || (BOOT && GUARD_FREE) || WRITE || (BRIDGED && BRIDGE_MAY) || (RECALL && RECALL_MAY) || \
	(REWRITE && GUARD_MAY) || (DONE && DONE_MAY) || (CLOSE && CLOSE_MAY))))

#include "back.pml"
#include "ends.pml"
#include "assigner.pml"
#include "slicelet.pml"

init {
	atomic {
#ifdef I3
		rank = RANK;
#endif
		run Assigner(0);
#if ASSIGNERS > 1
		run Assigner(1);
#endif
		run Slicelet(0);
		run Slicelet(1);
#ifdef BACK
		run Back();
#endif
#ifdef CALM
		run Calm()
#endif
	}
}
