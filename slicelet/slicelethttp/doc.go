// Package slicelethttp puts a slicelet in front of an ordinary HTTP server's
// handlers.
//
//	s, err := slicelet.New(slicelet.Config{
//		Job: "cache", Task: "cache-3", Address: "10.1.2.3:8080", Distributors: []string{"slicer:4720"},
//	})
//	if err != nil {
//		return err
//	}
//	handler, err := slicelethttp.Handler(s, mux, slicelethttp.Config{})
//	if err != nil {
//		return err
//	}
//	server := &http.Server{Handler: handler}
//	go server.Serve(listener)
//	<-terminated
//	return slicelethttp.Drain(ctx, s, server)
//
// Listen before slicelet.New: from then on clients may come.
//
// Each request with a key is counted as load (Slicelet.Handle), and its handler
// finds the slicelet.Handle with HandleFrom. The key comes in the header that
// clerkhttp and slicerproxy send; for requests from elsewhere Config.Key finds
// it, by the same rules (httpkey.Finder). A server trusts that header, so
// strangers should come by way of slicerproxy, which takes it from them.
//
// A request for a key that the task does not own is misrouted. In affinity mode it
// is served and counted; in consistent mode it is refused with 421 Misdirected
// Request, upon which clerkhttp asks the owner. The metric of misrouted requests
// reports whether the client was behind (it routed by an older assignment than this
// task holds) or ahead.
//
// # When there is no room
//
// If the job's admission is on, requests that the task has no room for are refused before
// the handler runs, the least critical first: more is asked of it than it can do, by how
// long goroutines wait to be started or by slicelet.Config.Signals, or the client would not
// wait for the answer. If it reports, they are only counted. Meanwhile answers say below
// which priority requests are refused (httpkey.HeaderLevel): clerkhttp and slicerproxy hold
// those back, but for trial requests. What must always be
// answered, such as /healthz and /metrics, belongs beside the Handler, not behind it.
// Requests that wait in the kernel, as the connection's goroutine has not read them, are
// not seen.
//
// A handler that has no room for a request answers by Overloaded before it has done
// anything. Where another owner of the key may have room clerkhttp and slicerproxy ask
// that, within their budget for retries (clerk.Clerk.MayRetry); where there is none, or
// where many of the requests that arrive have been sent before, the answer says that there
// should be no retry.
//
// # Long requests
//
// A request goes on at the task at which it has begun, wherever its key is by then. Config.EndMoved
// says which are long, such as server-sent events and WebSockets, and have to end when their key
// moves, or when the task drains, so that their clients connect to the new owner: EventSource does
// so by itself, and so does what clerkhttp sends, if it is safe to send again and no answer has
// begun, as of a long poll. A handler that has something to say or to save before listens to Moved.
// A connection that was hijacked goes on to be watched when the handler has returned, until it is
// closed.
//
// # Labels
//
// A request says how critical it is, its cohort, and what it is charged to
// (overload.LabelsOf), and how long its client waits for the answer: the handler's context
// has the first three, with the job's default criticality and a cohort by chance where the
// request says none, and ends when the client's does, so that requests that the handler
// makes with that context say the same.
//
// # Answers in consistent mode
//
// An answer is let out only if the task has owned the key at every moment since the
// request came (slicelet.Handle.AssignedContinuously). Up to 16 KiB are kept until the
// handler ends or flushes, so that the client gets 409 Conflict with
// httpkey.HeaderLost instead (clerk.Lost). Of a larger or flushed answer each part is
// looked at before it is sent; once the key is lost the handler's writes fail, and the
// connection, or in HTTP/2 the stream, is cut off when it ends. A connection that was
// hijacked, such as a WebSocket, is the handler's, which asks the Handle itself.
// Config.UncheckedAnswers switches all this off.
//
// So a read that is answered was answered by the key's owner. A write is another
// matter: the handler has run, so the write has happened, or may happen yet, and that
// its answer is held back takes nothing back. Only a store that compares
// Handle.FencingToken refuses it. Clients therefore send such a request again only if
// it is safe to carry it out twice, by its method or because it is marked so
// (clerk.WithIdempotent).
package slicelethttp
