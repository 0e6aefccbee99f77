/*
 * Consistent mode: the protocol by which a job's keys change hands without ever
 * having two owners. README.md beside this file says what is modelled, what is
 * checked and how to run it.
 *
 * Assigners (two) and slicelets (two) are processes; each step of a process is
 * one event with all that follows from it at once. What lies between a message
 * being sent, carried out and answered is a step each, so messages are late, and
 * lost, in every way there is.
 *
 * Keys are not in the model, because all of them are: a belief is the set of
 * generations in which a key must be one's own, and two slicelets believe in one
 * key of *some* assignments exactly if both sets hold something and they have
 * nothing in common. So a result holds for any contents of the assignments.
 */

/* In these, a message that comes late may do something. */
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
byte guardKey[SLICELETS], bridgeKey[SLICELETS];       /* of the session that a slicelet is in */
byte oldGuardKey[SLICELETS], oldBridgeKey[SLICELETS]; /* of one before it, whose lease still runs */
#define GUARD_HELD  (guardKey[0] || guardKey[1] || oldGuardKey[0] || oldGuardKey[1])
#define BRIDGE_HELD (bridgeKey[0] || bridgeKey[1] || oldBridgeKey[0] || oldBridgeKey[1])

byte tenure;           /* who has the job lease: 1 + number of the assigner, 0 nobody */
bool fresh[ASSIGNERS]; /* what it read is what is stored, and its token is the job lease's */

bool live[SLICELETS];   /* it runs, and has a session */
byte belief[SLICELETS]; /* a set of generations; see above */
bool calm, deadStay;    /* no more faults; who is dead then, stays dead */

#ifdef BRIDGE_EARLY
/* Contents that a generation may have: that of the assigner which decided it. */
byte decided[N + 1];
#define BIT(g) (1 << ((g) - 1 + N * content[g]))
#else
#define BIT(g) (1 << ((g) - 1))
#endif

#ifdef TWO_LIVE /* both answer to the name that owns the key */
#define APART false
#else
#define APART (belief[0] & belief[1])
#endif
#define I1 assert(!belief[0] || !belief[1] || APART)

/* ---- assigner ---------------------------------------------------------- */

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
#define WRITE   (STEADY && head == GUARD(now) && head < N)
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
#define CROSSED(s) (!guardKey[s] || bridgeKey[s] == BRIDGE(now))
#define RECALL_MAY (CROSSED(0) && CROSSED(1))
#else
#define RECALL_MAY true
#endif

#define put(r) now = r

/* A transaction is carried out: it has compared the token and the records. */
inline written() {
	fresh[0] = false;
#if ASSIGNERS > 1
	fresh[1] = false;
#endif
	pending = false
}

proctype Assigner(byte a) {
	bool pending; /* it has read, and sent the transaction that is called for */
#ifdef LOOK_BEFORE
	bool looked, sawGuardFree, sawBridgeFree;
#endif
end:	do
	:: d_step { !tenure && !pending -> tenure = a + 1 }
#ifdef LOOK_BEFORE
	:: d_step { tenure == a + 1 && !pending && !looked && CALLED_FOR ->
		looked = true; sawGuardFree = !GUARD_HELD; sawBridgeFree = !BRIDGE_HELD }
	:: d_step { looked && !pending && !calm -> looked = false; sawGuardFree = false; sawBridgeFree = false }
	:: d_step { looked && tenure == a + 1 && !pending && CALLED_FOR -> pending = true; fresh[a] = true; looked = false }
#else
	:: d_step { tenure == a + 1 && !pending && CALLED_FOR ->
		pending = true; fresh[a] = true
#ifdef BRIDGE_EARLY
		; if
		:: WRITE -> decided[TO(now)] = a /* resumes, and hands out what it thinks best */
		:: else
		fi
#endif
	}
#endif

	/* Exactly one of these is called for. */
	:: d_step { pending && fresh[a] && FIRST -> head = 1; written() }
	:: d_step { pending && fresh[a] && BOOT && GUARD_FREE -> put(REC(head, 1, 0, 0, 0)); written() }
	:: d_step { pending && fresh[a] && WRITE ->
#ifdef BRIDGE_EARLY
		decided[head + 1] = a;
#endif
		head++; written() }
#ifdef BRIDGE_EARLY
	:: d_step { pending && fresh[a] && BRIDGED && BRIDGE_MAY ->
		decided[head + 1] = a;
		put(REC(GUARD(now), 1, GUARD(now), head + 1, 1)); written() }
#else
	:: d_step { pending && fresh[a] && BRIDGED && BRIDGE_MAY -> put(REC(GUARD(now), 1, GUARD(now), head, 1)); written() }
#endif
	:: d_step { pending && fresh[a] && RECALL && RECALL_MAY -> put(REC(GUARD(now), 0, FROM(now), TO(now), 1)); written() }
	:: d_step { pending && fresh[a] && REWRITE && GUARD_MAY -> put(REC(TARGET, 1, FROM(now), TO(now), BRIDGE_OPEN(now))); written() }
#if defined(BRIDGE_KEPT)
	/* No RETIRE and no CLOSE: the next bridge takes this one's place. */
	:: d_step { pending && fresh[a] && DONE && head < N -> head++; written() }
	:: d_step { pending && fresh[a] && DONE && head > GUARD(now) -> put(REC(GUARD(now), 1, GUARD(now), head, 1)); written() }
#elif defined(DELETE_OPEN)
	:: d_step { pending && fresh[a] && DONE && CLOSE_MAY -> put(REC(GUARD(now), 1, 0, 0, 0)); written() }
#else
	:: d_step { pending && fresh[a] && DONE -> put(REC(GUARD(now), 1, FROM(now), TO(now), 0)); written() }
	:: d_step { pending && fresh[a] && CLOSE && CLOSE_MAY -> put(REC(GUARD(now), 1, 0, 0, 0)); written() }
#endif
	:: d_step { pending && !fresh[a] -> pending = false } /* the comparison fails */

	/* Faults: a message is lost, or it dies before it has sent it; its lease
	 * runs out, because it is dead, paused or cut off. A dead assigner does
	 * nothing, as a live one may at any point, and what it has sent may still
	 * be carried out; started again, it is one that has read nothing. */
#ifndef FEW_FAULTS
	:: d_step { !calm && pending -> pending = false; fresh[a] = false }
#endif
	:: d_step { !calm && tenure == a + 1 -> tenure = 0; fresh[a] = false }
	od
}

/* ---- slicelet ---------------------------------------------------------- */

/* What it believes: all of the guard's assignment, else the keys that are its own
 * both before and after, else nothing. Past its deadline, nothing: the clock is
 * read at every use, so this is the truth at every instant, paused or not. */
inline believe() {
	if
	:: !valid -> belief[s] = 0
#ifdef SHRINK
	:: valid && haveBridge -> belief[s] = BIT(B_FROM(mayBridge)) | BIT(B_TO(mayBridge))
	:: valid && !haveBridge && haveGuard -> belief[s] = BIT(mayGuard)
#else
	:: valid && haveGuard -> belief[s] = BIT(mayGuard)
#ifdef LAST_HELD
	:: valid && !haveGuard && haveBridge -> belief[s] = BIT(last) | BIT(B_TO(mayBridge))
#else
	:: valid && !haveGuard && haveBridge -> belief[s] = BIT(B_FROM(mayBridge)) | BIT(B_TO(mayBridge))
#endif
#endif
	:: else -> belief[s] = 0
	fi;
#ifdef BELIEVE_ON
	if
	:: valid && !belief[s] && dropGuard -> belief[s] = BIT(dropGuard)
	:: valid && !belief[s] && !dropGuard && dropBridge -> belief[s] = BIT(B_FROM(dropBridge)) | BIT(B_TO(dropBridge))
	:: else
	fi;
#endif
	I1;
#ifdef I2
	/* Nothing lost but by a fault, and all of the guard's while it is open. */
	assert(!unbroken || belief[s]);
	assert(!valid || !haveGuard || !GUARD_OPEN(now) || GUARD(now) != mayGuard || belief[s] == BIT(mayGuard));
	if
	:: belief[s] && haveGuard -> unbroken = true
	:: else
	fi
#endif
}

#ifdef I2
#define EXCUSED unbroken = false
#else
#define EXCUSED skip
#endif

inline fetch(g) {
#ifdef BRIDGE_EARLY
	if
	:: !fetched[g] -> fetched[g] = true; content[g] = decided[g]
	:: else
	fi
#else
	skip
#endif
}

/* Make before break: it lets go of the guard once it has the bridge, or there is
 * none to be had; of the bridge once it has the guard. What it does not believe
 * under, because it does not know whether it has it, it releases at once. */
#define SAME_BRIDGE (mayBridge == BRIDGE(seen))
#ifdef LET_GO
#define MAY_BREAK_GUARD  true
#else
#define MAY_BREAK_GUARD  (!haveGuard || (haveBridge && SAME_BRIDGE) || !BRIDGE_OPEN(seen) || FROM(seen) != mayGuard)
#endif
#define MAY_BREAK_BRIDGE (!haveBridge || haveGuard || !SAME_BRIDGE)

inline releaseGuard() {
	dropGuard = mayGuard; mayGuard = 0; haveGuard = false
#ifndef UNTIDY
	; if :: guardAnswered -> guardAnswered = false; askGuard = 0 :: else fi;
	if :: guardKey[s] != dropGuard -> dropGuard = 0 :: else fi
#endif
}
inline releaseBridge() {
	dropBridge = mayBridge; mayBridge = 0; haveBridge = false
#ifndef UNTIDY
	; if :: bridgeAnswered -> bridgeAnswered = false; askBridge = 0 :: else fi;
	if :: bridgeKey[s] != dropBridge -> dropBridge = 0 :: else fi
#endif
}

/* What it does about what it sees and has. Belief ends in the step that sends the release. */
inline react() {
#ifndef UNTIDY
	/* Forget messages that change nothing any more, acquires that can only fail and
	 * answers to what has been given up: two fifths of the states differ in no more. */
	if :: askGuard && !guardAnswered && (askGuard != GUARD(seen) || !GUARD_OPEN(seen)) -> askGuard = 0 :: else fi;
	if :: askBridge && !bridgeAnswered && (askBridge != BRIDGE(seen) || !BRIDGE_OPEN(seen)) -> askBridge = 0 :: else fi;
#endif
	if
	:: valid ->
		if
		:: mayGuard && (GUARD(seen) != mayGuard || !GUARD_OPEN(seen)) && MAY_BREAK_GUARD -> releaseGuard()
		:: else
		fi;
		if
		:: GUARD_OPEN(seen) && !haveGuard && (!askGuard || askGuard != GUARD(seen)) ->
			fetch(GUARD(seen));
			mayGuard = GUARD(seen); askGuard = mayGuard; guardAnswered = false
		:: else
		fi;
		if
		:: mayBridge && (!SAME_BRIDGE || !BRIDGE_OPEN(seen)) && MAY_BREAK_BRIDGE -> releaseBridge()
		:: else
		fi;
		if
		:: BRIDGE_OPEN(seen) && FROM(seen) == GUARD(seen) && !haveBridge && !mayBridge && (!askBridge || askBridge != BRIDGE(seen)) ->
			fetch(FROM(seen)); fetch(TO(seen));
			mayBridge = BRIDGE(seen); askBridge = mayBridge; bridgeAnswered = false
		:: BRIDGE_OPEN(seen) && FROM(seen) == GUARD(seen) && !haveBridge && mayBridge && !askBridge ->
			askBridge = mayBridge; bridgeAnswered = false
		:: else
		fi
	:: else
	fi;
	believe()
}

inline look() {
	seen = now
}

inline forget() {
	mayGuard = 0; haveGuard = false; mayBridge = 0; haveBridge = false;
	dropGuard = 0; dropBridge = 0;
	askGuard = 0; guardAnswered = false; askBridge = 0; bridgeAnswered = false
}

/* The session is over: the slicelet has died, or its lease has. */
inline leave() {
#ifdef OLD_ANSWER
	/* An answer on its way will be taken for one to the next session. */
	haveGuard = false; haveBridge = false; dropGuard = 0; dropBridge = 0;
	if :: !guardAnswered -> askGuard = 0; mayGuard = 0 :: else -> mayGuard = askGuard fi;
	if :: !bridgeAnswered -> askBridge = 0; mayBridge = 0 :: else -> mayBridge = askBridge fi;
#else
	forget();
#endif
	live[s] = false; valid = false; seen = 0;
	EXCUSED;
	believe()
}

inline session() {
	live[s] = true; valid = true;
#ifdef DEADLINE_LATE
	leased = true;
#endif
	look();
	react()
}

#ifdef DEADLINE_LATE
#define LEASED leased
#else
#define LEASED live[s]
#endif

#ifdef ACQUIRE_BLIND
#define GUARD_COMPARES(g)  true
#define BRIDGE_COMPARES(b) true
#else
#ifdef ACQUIRE_CLOSED /* compares the value, but not that it is open */
#define GUARD_COMPARES(g)  (GUARD(now) == (g))
#define BRIDGE_COMPARES(b) (BRIDGE(now) == (b))
#else
#define GUARD_COMPARES(g)  (GUARD(now) == (g) && GUARD_OPEN(now))
#define BRIDGE_COMPARES(b) (BRIDGE(now) == (b) && BRIDGE_OPEN(now))
#endif
#endif

proctype Slicelet(byte s) {
	bool valid;                    /* the deadline has not passed */
#ifdef DEADLINE_LATE
	bool leased;
#endif
	byte seen;                     /* of guard and bridge, by the watch */
	byte mayGuard, mayBridge;      /* what it holds or may hold */
	bool haveGuard, haveBridge;    /* it knows that it holds it */
	byte askGuard, askBridge;      /* acquire on its way, */
	bool guardAnswered, bridgeAnswered; /* or its answer */
	byte dropGuard, dropBridge;    /* release on its way, sent until answered */
#ifdef I2
	bool unbroken;
#endif
#ifdef LAST_HELD
	byte last;
#endif
#ifdef BRIDGE_EARLY
	bool fetched[N + 1];
	byte content[N + 1];
#endif
end:	do
	/* The watch brings the next record. */
#ifdef SEPARATE_WATCHES
	:: d_step { live[s] && (seen & 7) != (now & 7) -> seen = (now & 7) | (seen & 248); react() }
	:: d_step { live[s] && (seen & 248) != (now & 248) -> seen = (now & 248) | (seen & 7); react() }
#else
	:: d_step { live[s] && seen != now -> look(); react() }
#endif

	/* An acquire is carried out, or fails and brings the records as they are. */
	:: d_step { askGuard && !guardAnswered && LEASED && GUARD_COMPARES(askGuard) -> guardKey[s] = askGuard; guardAnswered = true }
	:: d_step { askGuard && !guardAnswered && !(LEASED && GUARD_COMPARES(askGuard)) -> askGuard = 0; look(); react() }
	:: d_step { askBridge && !bridgeAnswered && LEASED && BRIDGE_COMPARES(askBridge) -> bridgeKey[s] = askBridge; bridgeAnswered = true }
	:: d_step { askBridge && !bridgeAnswered && !(LEASED && BRIDGE_COMPARES(askBridge)) -> askBridge = 0; look(); react() }

	/* The answer comes. */
	:: d_step { guardAnswered ->
		if
		:: mayGuard == askGuard -> haveGuard = true
#ifdef LAST_HELD
			; last = mayGuard
#endif
		:: else
		fi;
		askGuard = 0; guardAnswered = false; react() }
	:: d_step { bridgeAnswered ->
		if
		:: mayBridge == askBridge -> haveBridge = true
#ifdef LAST_HELD
			; if :: !last -> last = B_FROM(mayBridge) :: else fi
#endif
		:: else
		fi;
		askBridge = 0; bridgeAnswered = false; react() }

	/* A release is carried out: it compares the value. */
#ifdef BELIEVE_ON
	:: d_step { dropGuard && guardKey[s] == dropGuard -> guardKey[s] = 0 }
	:: d_step { dropGuard && guardKey[s] != dropGuard -> dropGuard = 0; believe() } /* the answer */
	:: d_step { dropBridge && bridgeKey[s] == dropBridge -> bridgeKey[s] = 0 }
	:: d_step { dropBridge && bridgeKey[s] != dropBridge -> dropBridge = 0; believe() }
#else
	:: d_step { dropGuard -> if :: guardKey[s] == dropGuard -> guardKey[s] = 0 :: else fi; dropGuard = 0 }
	:: d_step { dropBridge -> if :: bridgeKey[s] == dropBridge -> bridgeKey[s] = 0 :: else fi; dropBridge = 0 }
#endif

	/* The deadline passes here, and later in the store; in between a keepalive may be answered. */
#ifndef NO_EXPIRY
	:: d_step { !calm && live[s] && valid -> valid = false; EXCUSED; believe() }
#endif
	:: d_step { live[s] && !valid && LEASED -> valid = true; react() }
#ifdef DEADLINE_LATE
	:: d_step { live[s] && leased && !calm -> leased = false; guardKey[s] = 0; bridgeKey[s] = 0 }
	:: d_step { live[s] && !leased -> leave() }
#else
	/* What is left is a slicelet without a session: what it still thinks that it holds means nothing. */
	:: d_step { live[s] && !valid -> guardKey[s] = 0; bridgeKey[s] = 0; leave() }
#endif

	/* The lease of the session before runs out. */
	:: d_step { oldGuardKey[s] || oldBridgeKey[s] -> oldGuardKey[s] = 0; oldBridgeKey[s] = 0 }

	/* Faults: messages and answers are lost; A2 or the bridge, or the guard, is not to be had; it dies; it starts. */
#ifndef FEW_FAULTS
	:: d_step { !calm && askGuard -> askGuard = 0; guardAnswered = false; react() }
	:: d_step { !calm && askBridge -> askBridge = 0; bridgeAnswered = false; react() }
	:: d_step { !calm && haveGuard && valid && !GUARD_OPEN(seen) -> EXCUSED; releaseGuard(); believe() }
	:: d_step { !calm && haveBridge && valid && SAME_BRIDGE && !BRIDGE_OPEN(seen) -> EXCUSED; releaseBridge(); believe() }
	:: d_step { !calm && live[s] && !oldGuardKey[s] && !oldBridgeKey[s] ->
		oldGuardKey[s] = guardKey[s]; oldBridgeKey[s] = bridgeKey[s];
		guardKey[s] = 0; bridgeKey[s] = 0;
		leave() }
#endif
	:: d_step { !live[s] && !(calm && deadStay) -> session() }
	od
}

/* ---- termination ------------------------------------------------------- */

#ifdef I3
/* At any moment faults stop. Whoever is dead then comes back, or does not. Each
 * step after that must bring things forward, so that the run comes to an end
 * (pan -l looks for cycles); there the last generation must be in force, and
 * every live slicelet believe in it. */
proctype Calm() {
progress: /* a run that goes round without end is wrong only after this */
	if
	:: d_step { calm = true; deadStay = true }
	:: calm = true
	fi;
	timeout ->
	assert(head == N && now == REC(N, 1, 0, 0, 0));
	assert(belief[0] == (1 << (N - 1)) || (deadStay && !live[0]));
	assert(belief[1] == (1 << (N - 1)) || (deadStay && !live[1]))
}
#endif

init {
	atomic {
		run Assigner(0);
#if ASSIGNERS > 1
		run Assigner(1);
#endif
		run Slicelet(0);
		run Slicelet(1);
#ifdef I3
		run Calm()
#endif
	}
}
