// Command client visits for users, each at the server that owns the user.
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net/http"
	"os"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
)

func main() {
	slicer := flag.String("slicer", "127.0.0.1:4720", "a Distributor, host:port")
	flag.Parse()
	c, err := clerk.New(clerk.Config{Job: "visits", Distributors: []string{*slicer}})
	if err != nil {
		log.Fatal(err)
	}
	t, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: c})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: t}
	for _, user := range flag.Args() {
		req, err := http.NewRequestWithContext(clerk.WithKey(context.Background(), user), "GET", "http://visits/users/"+user+"/visits", nil)
		if err != nil {
			log.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		io.Copy(os.Stdout, resp.Body)
		resp.Body.Close()
	}
}
