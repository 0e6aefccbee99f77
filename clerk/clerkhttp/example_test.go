package clerkhttp_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/clerk/clerkhttp"
)

// A client whose requests go to the tasks that own their keys.
func ExampleNewTransport() {
	c, err := clerk.New(clerk.Config{Job: "cache", Distributors: []string{"slicer-1.example:4720", "slicer-2.example:4720"}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	t, err := clerkhttp.NewTransport(clerkhttp.Config{Clerk: c})
	if err != nil {
		log.Fatal(err)
	}
	defer t.Close()
	client := &http.Client{Transport: t}
	ctx := clerk.WithKey(context.Background(), "user/4711")
	req, err := http.NewRequestWithContext(ctx, "GET", "http://cache/profile?user=4711", nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
}

// A program of one's own with a front end in it. slicerproxy is the same with
// rules from a file.
func ExampleNewProxy() {
	proxy, err := clerkhttp.NewProxy(clerkhttp.ProxyConfig{
		Rules: clerkhttp.Rules{List: []clerkhttp.Rule{
			{Host: "api.example.com", Job: "profiles", Key: []httpkey.Source{httpkey.Header("X-User"), httpkey.Cookie("session")}, Missing: clerkhttp.Refuse},
			{Job: "web"},
		}},
		Clerk: func(job string) (*clerk.Clerk, error) {
			return clerk.New(clerk.Config{Job: job, Distributors: []string{"slicer-1.example:4720"}})
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer proxy.Close()
	log.Fatal(http.ListenAndServe(":8080", proxy))
}
