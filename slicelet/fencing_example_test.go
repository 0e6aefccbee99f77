package slicelet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"sync"

	"github.com/slicer-project/slicer/assignment"
	"github.com/slicer-project/slicer/lease"
	"github.com/slicer-project/slicer/slicelet"
)

// table is a store that checks tokens: with each row it keeps the highest that it
// has seen, and refuses lower ones. In SQL, write is
//
//	UPDATE accounts SET token = $2, balance = $3 WHERE id = $1 AND token <= $2
//
// which has failed if it changes no row; claim is the same without the balance,
// and reads it in the same transaction.
type table struct {
	mu   sync.Mutex
	rows map[string]*row
}

type row struct {
	token   assignment.Generation
	balance int
}

var errFenced = errors.New("a later owner has been here")

// claim shuts out all earlier owners of the row, then reads it.
func (t *table) claim(id string, token assignment.Generation) (balance int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if token < r.token {
		return 0, errFenced
	}
	r.token = token
	return r.balance, nil
}

func (t *table) write(id string, token assignment.Generation, balance int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if token < r.token {
		return errFenced
	}
	r.token, r.balance = token, balance
	return nil
}

// bank keeps accounts in memory and writes them through.
type bank struct {
	s     *slicelet.Slicelet
	store *table
	mu    sync.Mutex
	open  map[string]account
}

type account struct {
	slicelet.Handle // under which it was read
	balance         int
}

// deposit serves a request.
func (b *bank) deposit(id string, amount int) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.s.Handle(id) // counts the request
	if !h.Owned() {
		return http.StatusMisdirectedRequest, nil // the client asks the owner
	}
	a, ok := b.open[id]
	if !ok || !a.AssignedContinuously() { // it was somebody else's meanwhile
		balance, err := b.store.claim(id, h.FencingToken())
		if err != nil {
			return http.StatusMisdirectedRequest, err
		}
		a = account{h, balance}
	}
	a.balance += amount
	// The process may be stopped here for an hour. No check before this line can
	// know; the store does.
	if err := b.store.write(id, a.FencingToken(), a.balance); err != nil {
		delete(b.open, id)
		return http.StatusMisdirectedRequest, err
	}
	b.open[id] = a
	return http.StatusOK, nil
}

// A server in consistent mode that writes through to a store, and what happens
// there when its process is stopped between its last check and its write.
func ExampleHandle_FencingToken() {
	serve := func(ctx context.Context, leases lease.Readers) { // lease/etcd, or lease/remote
		reader, err := lease.NewReader(lease.Config{Readers: leases})
		if err != nil {
			log.Fatal(err)
		}
		defer reader.Close() // after the slicelet
		s, err := slicelet.New(slicelet.Config{
			Job: "accounts", Task: "accounts-3", Address: "10.1.2.3:8080",
			Distributors: []string{"slicer-1.example:4720"}, Leases: reader,
		})
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		b := bank{s: s, store: &table{}, open: map[string]account{}}
		http.HandleFunc("/deposit", func(w http.ResponseWriter, r *http.Request) {
			code, _ := b.deposit(r.URL.Query().Get("account"), 1)
			w.WriteHeader(code)
		})
		<-ctx.Done()
	}
	_ = serve

	// Task 1 owns the account since generation 5, task 2 since generation 6.
	t := &table{rows: map[string]*row{"alice": {}}}
	balance, err := t.claim("alice", 5)
	fmt.Println("1 reads", balance, err)
	fmt.Println("1 writes", balance+10, t.write("alice", 5, balance+10))
	// 1 has checked its handle, will write 20, and is stopped. Its lease runs out.
	balance, err = t.claim("alice", 6)
	fmt.Println("2 reads", balance, err)
	fmt.Println("1 goes on and writes 20:", t.write("alice", 5, 20))
	fmt.Println("2 writes", balance+1, t.write("alice", 6, balance+1))
	// Output:
	// 1 reads 0 <nil>
	// 1 writes 10 <nil>
	// 2 reads 10 <nil>
	// 1 goes on and writes 20: a later owner has been here
	// 2 writes 11 <nil>
}
