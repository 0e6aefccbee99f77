/* A store that goes back: it is copied once, at any moment, and put back once, with
 * the sessions and holder keys that it had. Only with -DBACK. */
#ifdef BACK
byte copyNow, copyHead, copyTenure;
byte top;    /* the last generation that was ever written: numbers are not used twice */
bool copied, back;

#define NEXT (top + 1)
#define WRITE_NEXT top = NEXT; head = top
#define AHEAD my.ahead = copied && !back
#define LOOKED_AHEAD my.ahead = my.ahead || (copied && !back && now != copyNow)
#define NOT_SAVED my.inCopy = false; my.ahead = false
#define FOUND_OUT my.lost = false

/* What has seen or done nothing that the copy does not have goes on as if the rest
 * had been late: a store that is written to past its old revision is no lower, and
 * all records and keys are as they were. All else is found out at the first contact. */
#ifdef NO_CHECK
#define CONTACT(x) true
#define LOST(x) false
#else
#define CONTACT(x) (!x.lost)
#define LOST(x) (x.live && x.lost)
#endif

/* The record that suspends the store is there for as long as what was lost may
 * be believed in: at most a lease time. (Without the check it may be for longer, and the
 * record is gone by then.) */
#if defined(NO_SUSPENSION) || defined(NO_CHECK)
#define SUSPENDED false
#else
#define SUSPENDED ((one.lost && one.valid) || (two.lost && two.valid))
#endif

#define COPY(x) \
	x.inCopy = x.live && LEASE(x); x.copyGuard = x.guardKey; x.copyBridge = x.bridgeKey; \
	x.copyOldGuard = x.oldGuard; x.copyOldBridge = x.oldBridge

#ifdef REVIVE
#define LEASE(x) x.leased
#else
#define LEASE(x) true
#endif

inline restore(x) {
	x.lost = x.live && (!x.inCopy || x.ahead);
	x.oldGuard = x.copyOldGuard || (!x.inCopy && x.copyGuard);
	x.oldBridge = x.copyOldBridge || (!x.inCopy && x.copyBridge);
	if
	:: x.inCopy -> x.guardKey = x.copyGuard; x.bridgeKey = x.copyBridge
	:: else -> x.guardKey = 0; x.bridgeKey = 0
	fi;
#ifdef REVIVE
	x.leased = x.inCopy;
#endif
	/* Requests on their way end with their connections. */
	if :: x.askGuard && !x.guardAnswered -> x.askGuard = 0 :: else fi;
	if :: x.askBridge && !x.bridgeAnswered -> x.askBridge = 0 :: else fi;
	x.dropGuard = 0; x.dropBridge = 0;
	x.inCopy = false; x.ahead = false;
	x.copyGuard = 0; x.copyBridge = 0; x.copyOldGuard = false; x.copyOldBridge = false
}

proctype Back() {
	d_step { copied = true; copyNow = now; copyHead = head; copyTenure = tenure; COPY(one); COPY(two) }
	d_step {
		back = true; now = copyNow; head = copyHead; tenure = copyTenure; fresh[0] = false;
#if ASSIGNERS > 1
		fresh[1] = false;
#endif
		restore(one); restore(two);
		copyNow = 0; copyHead = 0; copyTenure = 0
	}
}
#else
#define NEXT (head + 1)
#define WRITE_NEXT head++
#define AHEAD skip
#define LOOKED_AHEAD skip
#define NOT_SAVED skip
#define FOUND_OUT skip
#define CONTACT(x) true
#define LOST(x) false
#define SUSPENDED false
#endif
