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
// says whether the client was behind (it routed by an older assignment than this
// task holds) or ahead.
package slicelethttp
