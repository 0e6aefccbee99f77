// Package rpc measures what Slicer costs a request, in CPU time of the client, of the server and of
// the proxy between them: against plain gRPC, plain net/http and a plain httputil.ReverseProxy.
//
// Client, servers and proxy are processes of their own that share one core, the second of the
// machine, with GOMAXPROCS=1; the control plane has the first. In each round every kind is
// measured once, in an order by chance, with the same number of requests after some that are not
// measured: in one and the same order, what came after its like was found cheaper by .05. CPU time
// is getrusage's, user and system, of each process. What is judged is the median over the rounds of
// what a plain kind's requests took in a round, divided by what ours took in the same round: what is
// left of the requests a second that a core serves.
package rpc
