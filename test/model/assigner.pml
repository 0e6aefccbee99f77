/* An assigner: package lease, Next and Advance. */

#define put(r) now = r

/* A transaction is carried out: it has compared the token and the records. */
inline written() {
	fresh[0] = false;
#if ASSIGNERS > 1
	fresh[1] = false;
#endif
	pending = false
}

#ifdef UNTIDY
#define DEPOSED fresh[a] = false
#else
#define DEPOSED fresh[a] = false; pending = false
#endif

proctype Assigner(byte a) {
	bool pending; /* it has read, and sent the transaction that is called for */
#ifdef LOOK_BEFORE
	bool looked, sawGuardFree, sawBridgeFree;
#endif
end:	do
	:: d_step { !tenure && !pending -> tenure = a + 1; FORWARD }
#ifdef LOOK_BEFORE
	:: d_step { tenure == a + 1 && !pending && !looked && CALLED_FOR ->
		looked = true; sawGuardFree = !GUARD_HELD; sawBridgeFree = !BRIDGE_HELD; FORWARD }
	:: d_step { looked && !pending && !calm -> looked = false; sawGuardFree = false; sawBridgeFree = false; FAULT }
	:: d_step { looked && tenure == a + 1 && !pending && CALLED_FOR -> pending = true; fresh[a] = true; looked = false; FORWARD }
#else
	:: d_step { tenure == a + 1 && !pending && CALLED_FOR ->
		pending = true; fresh[a] = true
#ifdef BRIDGE_EARLY
		; if
		:: WRITE -> decided[TO(now)] = a /* resumes, and hands out what it thinks best */
		:: else
		fi
#endif
		; FORWARD
	}
#endif

	/* Exactly one of these is called for. */
	:: d_step { pending && fresh[a] && FIRST -> WRITE_NEXT; written(); FORWARD }
	:: d_step { pending && fresh[a] && BOOT && GUARD_FREE -> put(REC(head, 1, 0, 0, 0)); written(); FORWARD }
	:: d_step { pending && fresh[a] && WRITE ->
#ifdef BRIDGE_EARLY
		decided[head + 1] = a;
#endif
		WRITE_NEXT; written(); FORWARD }
#ifdef BRIDGE_EARLY
	:: d_step { pending && fresh[a] && BRIDGED && BRIDGE_MAY ->
		decided[head + 1] = a;
		put(REC(GUARD(now), 1, GUARD(now), head + 1, 1)); written(); FORWARD }
#else
	:: d_step { pending && fresh[a] && BRIDGED && BRIDGE_MAY -> put(REC(GUARD(now), 1, GUARD(now), head, 1)); written(); FORWARD }
#endif
	:: d_step { pending && fresh[a] && RECALL && RECALL_MAY -> put(REC(GUARD(now), 0, FROM(now), TO(now), 1)); written(); FORWARD }
	:: d_step { pending && fresh[a] && REWRITE && GUARD_MAY -> put(REC(TARGET, 1, FROM(now), TO(now), BRIDGE_OPEN(now))); written(); FORWARD }
#ifdef REOPEN /* a recall that takes long is taken back, and tried again */
	:: d_step { pending && fresh[a] && REWRITE -> put(REC(GUARD(now), 1, FROM(now), TO(now), BRIDGE_OPEN(now))); written(); FORWARD }
#endif
#if defined(BRIDGE_KEPT)
	/* No RETIRE and no CLOSE: the next bridge takes this one's place. */
	:: d_step { pending && fresh[a] && DONE && head < N -> head++; written(); FORWARD }
	:: d_step { pending && fresh[a] && DONE && head > GUARD(now) -> put(REC(GUARD(now), 1, GUARD(now), head, 1)); written(); FORWARD }
#elif defined(DELETE_OPEN)
	:: d_step { pending && fresh[a] && DONE && DONE_MAY -> put(REC(GUARD(now), 1, 0, 0, 0)); written(); FORWARD }
#else
	:: d_step { pending && fresh[a] && DONE -> put(REC(GUARD(now), 1, FROM(now), TO(now), 0)); written(); FORWARD }
	:: d_step { pending && fresh[a] && CLOSE && CLOSE_MAY -> put(REC(GUARD(now), 1, 0, 0, 0)); written(); FORWARD }
#endif
	:: d_step { pending && !fresh[a] -> pending = false; FORWARD } /* the comparison fails */

	/* Faults: a message is lost, or it dies before it has sent it; its lease
	 * runs out, because it is dead, paused or cut off. A dead assigner does
	 * nothing, as a live one may at any point, and what it has sent may still
	 * be carried out; started again, it is one that has read nothing. */
#ifndef FEW_FAULTS
	:: d_step { !calm && pending -> pending = false; fresh[a] = false; FAULT }
#endif
	:: d_step { !calm && tenure == a + 1 -> tenure = 0; DEPOSED; FAULT }
	od
}
