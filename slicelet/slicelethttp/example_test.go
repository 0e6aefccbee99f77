package slicelethttp_test

import (
	"fmt"
	"log"
	"net/http"

	"github.com/slicer-project/slicer/assignment/httpkey"
	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/slicelet/slicelethttp"
)

// A server whose clients know where keys are by themselves, so that it finds the
// keys as they do.
func ExampleHandler() {
	s, err := slicelet.New(slicelet.Config{
		Job: "cache", Task: "cache-3", Address: "10.1.2.3:8080", Distributors: []string{"slicer-1.example:4720"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	finder, err := httpkey.New(httpkey.Query("user"))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/profile", func(w http.ResponseWriter, r *http.Request) {
		h, _ := slicelethttp.HandleFrom(r.Context())
		fmt.Fprintln(w, "mine all along:", h.AssignedContinuously())
	})
	handler, err := slicelethttp.Handler(s, http.DefaultServeMux, slicelethttp.Config{Key: finder.Find})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(":8080", handler))
}
