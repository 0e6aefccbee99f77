// Command client writes entries and reads them: client KEY=NUMBER writes, client KEY
// reads.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strconv"
	"strings"
	"time"

	"github.com/slicer-project/slicer/clerk"
	"github.com/slicer-project/slicer/test/examples/handover"
)

func main() {
	slicer := flag.String("slicer", "127.0.0.1:4720", "a Distributor, host:port")
	flag.Parse()
	c, err := clerk.New(clerk.Config{Job: "entries", Distributors: []string{*slicer}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	client := handover.Client{Clerk: c}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, arg := range flag.Args() {
		key, number, write := strings.Cut(arg, "=")
		n, ok := uint64(0), true
		if n, err = strconv.ParseUint(number, 10, 64); write && err == nil {
			err = client.Put(ctx, key, n)
		} else if !write {
			n, ok, err = client.Get(ctx, key)
		}
		switch {
		case err != nil:
			log.Fatal(err)
		case ok:
			fmt.Println(key, n)
		default:
			fmt.Println(key, "is missing")
		}
	}
}
