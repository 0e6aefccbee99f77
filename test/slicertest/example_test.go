package slicertest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/slicertest"
)

// A test has New(t) instead of Start and Close.
func Example() {
	env := slicertest.Start()
	defer env.Close()
	a := env.Slicelet(slicelet.Config{Job: "cache", Task: "cache-0"})
	b := env.Slicelet(slicelet.Config{Job: "cache", Task: "cache-1"})
	c := env.Clerk(clerk.Config{Job: "cache"})
	for _, task := range []string{"cache-0", "cache-1"} {
		env.Assign("cache", slicertest.Key("ada", task))
		fmt.Println(c.Lookup("ada").At(0).Name, a.IsAffinitized("ada"), b.IsAffinitized("ada"))
	}
	// Output:
	// cache-0 true false
	// cache-1 false true
}

// log is a listener.
type log struct{}

func (log) SlicesChanged(_ context.Context, c slicelet.Change) {
	time.Sleep(10 * time.Millisecond) // it saves something
	for _, r := range c.Departed {
		fmt.Printf("%d keys have gone to %s\n", r.Width(), r.To[0].Name)
	}
}

// Listeners have returned when Assign returns.
func ExampleEnv_Assign() {
	env := slicertest.Start()
	defer env.Close()
	env.Slicelet(slicelet.Config{Job: "cache", Task: "cache-0"}).Listen(log{})
	env.Assign("cache", slicertest.Spread("cache-0")) // until then a change might be a part of what Listen tells first
	env.Assign("cache", slicertest.Key("bob", "cache-1"))
	env.Assign("cache", slicertest.Key("ada", "cache-1"))
	fmt.Println("assigned")
	// Output:
	// 1 keys have gone to cache-1
	// 1 keys have gone to cache-1
	// assigned
}

// A server in consistent mode is stopped between its last check and its write, for longer than its
// lease: what it writes carries the older token, and the store refuses that.
func ExampleEnv_Lose() {
	env := slicertest.Start()
	defer env.Close()
	env.Consistent("accounts")
	a := env.Slicelet(slicelet.Config{Job: "accounts", Task: "accounts-0"})
	b := env.Slicelet(slicelet.Config{Job: "accounts", Task: "accounts-1"})
	env.Assign("accounts", slicertest.Spread("accounts-0"))
	h := a.Handle("ada")
	fmt.Println(h.Owned(), h.AssignedContinuously(), b.IsAffinitized("ada"))
	regain := env.Lose("accounts-0") // and with it all that it owns
	fmt.Println(h.AssignedContinuously(), b.IsAffinitized("ada"))
	env.Assign("accounts", slicertest.Key("ada", "accounts-1"))
	fmt.Println(b.Handle("ada").FencingToken() > h.FencingToken())
	regain() // what ada's new owner has not got
	fmt.Println(h.AssignedContinuously(), a.IsAffinitized("ada"), a.IsAffinitized("bob"))
	// Output:
	// true true false
	// false false
	// true
	// false false true
}

// A client that does not know yet that a key has moved asks the former owner.
func ExampleEnv_Hold() {
	env := slicertest.Start()
	defer env.Close()
	s := env.Slicelet(slicelet.Config{Job: "cache", Task: "cache-0"})
	c := env.Clerk(clerk.Config{Job: "cache", ClientID: "frontend"})
	release := env.Hold("frontend")
	env.Assign("cache", slicertest.Spread("cache-0"), slicertest.Key("ada", "cache-1"))
	fmt.Println(c.Lookup("ada").At(0).Name, s.IsAffinitized("ada"))
	release()
	fmt.Println(c.Lookup("ada").At(0).Name)
	// Output:
	// cache-0 false
	// cache-1
}

// Servers and clients of the test need no network either.
func ExampleEnv_Listen() {
	env := slicertest.Start()
	defer env.Close()
	s := env.Slicelet(slicelet.Config{Job: "cache", Task: "cache-0"})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%t", s.Handle(r.FormValue("user")).Owned())
	})}
	lis := env.Listen("cache-0")
	served := make(chan error)
	go func() { served <- server.Serve(lis) }()
	client := &http.Client{Transport: &http.Transport{DialContext: env.DialContext}}
	task := env.Clerk(clerk.Config{Job: "cache"}).Lookup("ada").At(0)
	resp, err := client.Get("http://" + task.Address + "/profile?user=ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	body := make([]byte, 4)
	_, _ = resp.Body.Read(body)
	_ = resp.Body.Close()
	fmt.Println(resp.Status, string(body))
	client.CloseIdleConnections()
	fmt.Println(errors.Is(server.Close(), net.ErrClosed), errors.Is(<-served, http.ErrServerClosed))
	// Output:
	// 200 OK true
	// false true
}

// A clerk that connects to nothing.
func ExampleAssignment() {
	a := slicertest.Assignment("cache", slicertest.Spread("cache-0", "cache-1"), slicertest.Key("ada", "cache-1"))
	c, err := clerk.New(clerk.Config{Job: "cache", Static: a})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	fmt.Println(c.Lookup("ada").At(0).Address)
	// Output: cache-1.test:80
}
