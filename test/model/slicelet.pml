/* A slicelet: package lease, Core and Job. */

/* What it believes: all of the guard's assignment, else the keys that are its own
 * both before and after, else nothing. Past its deadline, nothing: the clock is
 * read at every use, so this is the truth at every instant, paused or not. */
inline believe() {
	if
	:: !my.valid -> my.belief = 0
#ifdef SHRINK
	:: my.valid && my.haveBridge -> my.belief = BIT(B_FROM(my.mayBridge)) | BIT(B_TO(my.mayBridge))
	:: my.valid && !my.haveBridge && my.haveGuard -> my.belief = BIT(my.mayGuard)
#else
	:: my.valid && my.haveGuard -> my.belief = BIT(my.mayGuard)
#ifdef LAST_HELD
	:: my.valid && !my.haveGuard && my.haveBridge -> my.belief = BIT(my.last) | BIT(B_TO(my.mayBridge))
#else
	:: my.valid && !my.haveGuard && my.haveBridge -> my.belief = BIT(B_FROM(my.mayBridge)) | BIT(B_TO(my.mayBridge))
#endif
#endif
	:: else -> my.belief = 0
	fi;
#ifdef BELIEVE_ON
	if
	:: my.valid && !my.belief && my.dropGuard -> my.belief = BIT(my.dropGuard)
	:: my.valid && !my.belief && !my.dropGuard && my.dropBridge -> my.belief = BIT(B_FROM(my.dropBridge)) | BIT(B_TO(my.dropBridge))
	:: else
	fi;
#endif
	I1;
#ifdef I2
	/* Nothing lost but by a fault, and all of the guard's while it is open. */
	assert(!my.unbroken || my.belief);
	assert(!my.valid || !my.haveGuard || !GUARD_OPEN(now) || GUARD(now) != my.mayGuard || my.belief == BIT(my.mayGuard));
	if
	:: my.belief && my.haveGuard -> my.unbroken = true
	:: else
	fi
#endif
}

#ifdef I2
#define EXCUSED my.unbroken = false
#else
#define EXCUSED skip
#endif

inline fetch(g) {
#ifdef BRIDGE_EARLY
	if
	:: !my.fetched[g] -> my.fetched[g] = true; my.content[g] = decided[g]
	:: else
	fi
#else
	skip
#endif
}

/* Make before break: it lets go of the guard once it has the bridge, or there is
 * none to be had; of the bridge once it has the guard. What it does not believe
 * under, because it does not know whether it has it, it releases at once. */
#define SAME_BRIDGE (my.mayBridge == BRIDGE(my.seen))
#ifdef LET_GO
#define MAY_BREAK_GUARD  true
#else
#define MAY_BREAK_GUARD  (!my.haveGuard || (my.haveBridge && SAME_BRIDGE) || !BRIDGE_OPEN(my.seen) || FROM(my.seen) != my.mayGuard)
#endif
#define MAY_BREAK_BRIDGE (!my.haveBridge || my.haveGuard || !SAME_BRIDGE)

inline releaseGuard() {
	my.dropGuard = my.mayGuard; my.mayGuard = 0; my.haveGuard = false
#ifndef UNTIDY
	; if :: my.guardAnswered -> my.guardAnswered = false; my.askGuard = 0 :: else fi;
	if :: my.guardKey != my.dropGuard -> my.dropGuard = 0 :: else fi
#endif
}
inline releaseBridge() {
	my.dropBridge = my.mayBridge; my.mayBridge = 0; my.haveBridge = false
#ifndef UNTIDY
	; if :: my.bridgeAnswered -> my.bridgeAnswered = false; my.askBridge = 0 :: else fi;
	if :: my.bridgeKey != my.dropBridge -> my.dropBridge = 0 :: else fi
#endif
}

/* What it does about what it sees and has. Belief ends in the step that sends the release. */
inline react() {
#ifndef UNTIDY
	/* Messages that change nothing any more: see UNTIDY. */
	if :: my.askGuard && !my.guardAnswered && (my.askGuard != GUARD(my.seen) || !GUARD_OPEN(my.seen)) -> my.askGuard = 0 :: else fi;
	if :: my.askBridge && !my.bridgeAnswered && (my.askBridge != BRIDGE(my.seen) || !BRIDGE_OPEN(my.seen)) -> my.askBridge = 0 :: else fi;
#endif
	if
	:: my.valid ->
		if
		:: my.mayGuard && (GUARD(my.seen) != my.mayGuard || !GUARD_OPEN(my.seen)) && MAY_BREAK_GUARD -> releaseGuard()
		:: else
		fi;
		if
		:: GUARD_OPEN(my.seen) && !my.haveGuard && (!my.askGuard || my.askGuard != GUARD(my.seen)) ->
			fetch(GUARD(my.seen));
			my.mayGuard = GUARD(my.seen); my.askGuard = my.mayGuard; my.guardAnswered = false
		:: else
		fi;
		if
		:: my.mayBridge && (!SAME_BRIDGE || !BRIDGE_OPEN(my.seen)) && MAY_BREAK_BRIDGE -> releaseBridge()
		:: else
		fi;
		if
		:: BRIDGE_OPEN(my.seen) && FROM(my.seen) == GUARD(my.seen) && !my.haveBridge && !my.mayBridge && (!my.askBridge || my.askBridge != BRIDGE(my.seen)) ->
			fetch(FROM(my.seen)); fetch(TO(my.seen));
			my.mayBridge = BRIDGE(my.seen); my.askBridge = my.mayBridge; my.bridgeAnswered = false
		:: BRIDGE_OPEN(my.seen) && FROM(my.seen) == GUARD(my.seen) && !my.haveBridge && my.mayBridge && !my.askBridge ->
			my.askBridge = my.mayBridge; my.bridgeAnswered = false
		:: else
		fi
	:: else
	fi;
	believe()
}

inline look() {
	my.seen = now;
	LOOKED_AHEAD
}

inline forget() {
	my.mayGuard = 0; my.haveGuard = false; my.mayBridge = 0; my.haveBridge = false;
	my.dropGuard = 0; my.dropBridge = 0;
	my.askGuard = 0; my.guardAnswered = false; my.askBridge = 0; my.bridgeAnswered = false
}

/* What the store keeps of a session that is over. */
inline outlive() {
	my.oldGuard = my.oldGuard || my.guardKey; my.oldBridge = my.oldBridge || my.bridgeKey;
	my.guardKey = 0; my.bridgeKey = 0
}

/* The session is over: the slicelet has died, or its lease has. */
inline leave() {
#ifdef OLD_ANSWER
	/* An answer on its way will be taken for one to the next session. */
	my.haveGuard = false; my.haveBridge = false; my.dropGuard = 0; my.dropBridge = 0;
	if :: !my.guardAnswered -> my.askGuard = 0; my.mayGuard = 0 :: else -> my.mayGuard = my.askGuard fi;
	if :: !my.bridgeAnswered -> my.askBridge = 0; my.mayBridge = 0 :: else -> my.mayBridge = my.askBridge fi;
#else
	forget();
#endif
	my.live = false; my.valid = false; my.seen = 0;
	NOT_SAVED; FOUND_OUT;
	EXCUSED;
	believe()
}

inline session() {
	my.live = true; my.valid = true;
#if defined(DEADLINE_LATE) || defined(REVIVE)
	my.leased = true;
#endif
	look();
	react()
}

#if defined(DEADLINE_LATE) || defined(REVIVE)
#define LEASED my.leased
#else
#define LEASED my.live
#endif

#ifdef ACQUIRE_BLIND
#define GUARD_COMPARES(g)  true
#define BRIDGE_COMPARES(b) true
#else
#ifdef ACQUIRE_CLOSED /* compares the value, but not that it is open */
#define GUARD_COMPARES(g)  (GUARD(now) == (g))
#define BRIDGE_COMPARES(b) (BRIDGE(now) == (b))
#else
#define GUARD_COMPARES(g)  (!SUSPENDED && GUARD(now) == (g) && GUARD_OPEN(now))
#define BRIDGE_COMPARES(b) (!SUSPENDED && BRIDGE(now) == (b) && BRIDGE_OPEN(now))
#endif
#endif

#define GUARD_ASKED  (my.askGuard && !my.guardAnswered && CONTACT(my))
#define BRIDGE_ASKED (my.askBridge && !my.bridgeAnswered && CONTACT(my))

proctype Slicelet(byte s) {
end:	do
	/* The watch brings the next record. */
#ifdef SEPARATE_WATCHES
	:: d_step { my.live && (my.seen & 7) != (now & 7) -> my.seen = (now & 7) | (my.seen & 248); react(); FORWARD }
	:: d_step { my.live && (my.seen & 248) != (now & 248) -> my.seen = (now & 248) | (my.seen & 7); react(); FORWARD }
#else
	:: d_step { LOOKS(my) -> look(); react(); FORWARD }
#endif

	/* An acquire is carried out, or fails and brings the records as they are. */
	:: d_step { GUARD_ASKED && LEASED && GUARD_COMPARES(my.askGuard) -> my.guardKey = my.askGuard; my.guardAnswered = true; AHEAD; FORWARD }
	:: d_step { GUARD_ASKED && !(LEASED && GUARD_COMPARES(my.askGuard)) -> my.askGuard = 0; look(); react(); FORWARD }
	:: d_step { BRIDGE_ASKED && LEASED && BRIDGE_COMPARES(my.askBridge) -> my.bridgeKey = my.askBridge; my.bridgeAnswered = true; AHEAD; FORWARD }
	:: d_step { BRIDGE_ASKED && !(LEASED && BRIDGE_COMPARES(my.askBridge)) -> my.askBridge = 0; look(); react(); FORWARD }

	/* The answer comes. */
	:: d_step { my.askGuard && my.guardAnswered ->
		if
		:: my.mayGuard == my.askGuard -> my.haveGuard = true
#ifdef LAST_HELD
			; my.last = my.mayGuard
#endif
		:: else
		fi;
		my.askGuard = 0; my.guardAnswered = false; react(); FORWARD }
	:: d_step { my.askBridge && my.bridgeAnswered ->
		if
		:: my.mayBridge == my.askBridge -> my.haveBridge = true
#ifdef LAST_HELD
			; if :: !my.last -> my.last = B_FROM(my.mayBridge) :: else fi
#endif
		:: else
		fi;
		my.askBridge = 0; my.bridgeAnswered = false; react(); FORWARD }

	/* A release is carried out: it compares the value. */
#ifdef BELIEVE_ON
	:: d_step { my.dropGuard && my.guardKey == my.dropGuard -> my.guardKey = 0; FORWARD }
	:: d_step { my.dropGuard && my.guardKey != my.dropGuard -> my.dropGuard = 0; believe(); FORWARD } /* the answer */
	:: d_step { my.dropBridge && my.bridgeKey == my.dropBridge -> my.bridgeKey = 0; FORWARD }
	:: d_step { my.dropBridge && my.bridgeKey != my.dropBridge -> my.dropBridge = 0; believe(); FORWARD }
#else
	:: d_step { my.dropGuard -> if :: my.guardKey == my.dropGuard -> my.guardKey = 0 :: else fi; my.dropGuard = 0; AHEAD; FORWARD }
	:: d_step { my.dropBridge -> if :: my.bridgeKey == my.dropBridge -> my.bridgeKey = 0 :: else fi; my.dropBridge = 0; AHEAD; FORWARD }
#endif

	/* The deadline passes here, and later in the store. */
#ifndef NO_EXPIRY
	:: d_step { !calm && my.live && my.valid -> my.valid = false; EXCUSED; believe(); FAULT }
#endif
#ifdef REVIVE /* a keepalive is answered after the deadline, and counts */
	:: d_step { LAPSED(my) && LEASED -> my.valid = true; react(); FORWARD }
	:: d_step { LAPSED(my) && my.leased -> my.leased = false; my.guardKey = 0; my.bridgeKey = 0; FORWARD }
#endif
#ifdef DEADLINE_LATE
	:: d_step { my.live && my.leased && !calm -> my.leased = false; my.guardKey = 0; my.bridgeKey = 0; FAULT }
	:: d_step { my.live && !my.leased -> leave(); FORWARD }
#else
	/* Its session is over, and is given back; or runs out later, as that of a slicelet which has died. */
	:: d_step { LAPSED(my) -> my.guardKey = 0; my.bridgeKey = 0; leave(); FORWARD }
#endif
	/* It hears that the store has gone back; what the store has of its session is given back. */
	:: d_step { LOST(my) -> my.guardKey = 0; my.bridgeKey = 0; leave(); FORWARD }

	/* The leases of sessions before run out. */
	:: d_step { my.oldGuard -> my.oldGuard = false; FORWARD }
	:: d_step { my.oldBridge -> my.oldBridge = false; FORWARD }

	/* A2 or the bridge, or the guard, is not to be had for so long that patience ends. */
#ifndef FEW_FAULTS
	:: d_step { my.haveGuard && my.valid && !GUARD_OPEN(my.seen) -> EXCUSED; releaseGuard(); believe(); FORWARD }
	:: d_step { my.haveBridge && my.valid && SAME_BRIDGE && !BRIDGE_OPEN(my.seen) -> EXCUSED; releaseBridge(); believe(); FORWARD }

	/* Faults: messages and answers are lost; it dies; it starts. */
	:: d_step { !calm && my.askGuard -> my.askGuard = 0; my.guardAnswered = false; react(); FAULT }
	:: d_step { !calm && my.askBridge -> my.askBridge = 0; my.bridgeAnswered = false; react(); FAULT }
	:: d_step { !calm && my.live ->
		outlive(); leave(); FAULT }
#endif
	:: d_step { !my.live && !STAYS_DEAD -> session(); FAULT }
	od
}
