// Command frontend is a web server of which each user may ask so much, over all frontends.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/examples/ratelimit"
	"github.com/slicer-project/slicer/test/examples/ratelimit/quota"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "where to serve, host:port")
	slicer := flag.String("slicer", "127.0.0.1:4720", "a Distributor, host:port")
	rate := flag.Float64("rate", 10, "requests a second of each user")
	burst := flag.Float64("burst", 10, "requests at once of each user")
	frontends := flag.Int("frontends", 2, "about how many frontends there are")
	flag.Parse()
	limit := quota.Limit{Rate: *rate, Burst: *burst}
	if err := limit.Validate(); err != nil {
		log.Fatal(err)
	}
	c, err := clerk.New(clerk.Config{Job: ratelimit.Job, Distributors: []string{*slicer}})
	if err != nil {
		log.Fatal(err)
	}
	limits, err := ratelimit.NewClient(ratelimit.ClientConfig{
		Clerk: c, Frontends: *frontends, DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())},
	})
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("GET /hello/{user}", func(w http.ResponseWriter, r *http.Request) {
		switch ok, err := limits.Allow("hello/"+r.PathValue("user"), limit, 1); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		case !ok:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		default:
			fmt.Fprintf(w, "hello %s\n", r.PathValue("user"))
		}
	})
	lis, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	go server.Serve(lis)
	log.Print("serving at http://", lis.Addr(), "/hello/USER")
	<-ctx.Done()
	stop() // a second signal ends it at once
	end, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	server.Shutdown(end)
	limits.Close()
	c.Close()
}
