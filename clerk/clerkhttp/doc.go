// Package clerkhttp sends HTTP requests to the tasks that own their keys (Slicer
// paper, sections 2.3 and 3.4): as a client's http.RoundTripper, or as a reverse proxy
// whose rules say where the key is, which is the paper's HTTP front end.
//
//	t, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: c})
//	if err != nil {
//		return err
//	}
//	defer t.Close()
//	client := http.Client{Transport: t}
//	req, err := http.NewRequestWithContext(clerk.WithKey(ctx, user), "GET", "http://profiles/profile?user="+user, nil)
//	...
//	resp, err := client.Do(req) // by the task that owns the user
//
// The key is clerk.WithKey's, or else what Config.Key finds. Only the address
// that is connected to changes: the Host header stays what the URL says.
//
// # When a task does not answer
//
// A request that no task has taken is sent again, if its body was not read yet
// or can be had anew. One whose connection broke later is sent again only if
// it is idempotent, by net/http's rules: a GET, HEAD, OPTIONS or TRACE, or one
// with an Idempotency-Key, or whose context is of clerk.WithIdempotent. Such a request of a Transport does not wait either for a
// task that is said to be dead before it has answered. In affinity mode it goes to another owner of the
// key, else to another task, four in all; tasks that were not reached lately come
// last. What all that use the clerk send to other tasks is within a tenth of their
// requests (clerk.MayRetry): beyond it a request fails as it has failed at first. In consistent mode only the owner will do: the request waits for it,
// within its deadline and Config.Patience. So does one that a task has refused by
// 421 Misdirected Request; bodies up to 64 KiB are kept for that.
//
// In consistent mode a task holds its answer back if it lost the key while it worked
// for it, and answers 409 Conflict instead, which LostOf tells from others: the
// request may have been carried out. An idempotent one is sent again, as one that was
// refused; of others a Transport returns that answer, and a Proxy says 502 Bad
// Gateway, as when a connection breaks.
//
// # Connections
//
// Each task has a pool of connections, an http.Transport. Those of tasks in the
// clerk's subset stay open until nothing was asked of them for 5 minutes; those of other tasks are opened on demand and closed
// when they have been idle for a short while; those of tasks that leave are
// closed. The clerk counts them by cause.
package clerkhttp
