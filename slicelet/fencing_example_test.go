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

// fence is sent with each access to the store, and orders them: the token tells a
// later owner of the key from an earlier one, and the sequence a later write of one
// owner from an earlier one. A process counts all its writes with one sequence, since
// it may lose a key and get it back with the same token; a restarted process has a
// higher token, so it may count from 1 again.
type fence struct {
	token    assignment.Generation
	sequence uint64
}

func (f fence) after(g fence) bool {
	return f.token > g.token || f.token == g.token && f.sequence > g.sequence
}

// table is a store that checks fences: with each row it keeps the highest that it
// has seen, and refuses all that are not higher. In SQL, write is
//
//	UPDATE accounts SET token = $2, sequence = $3, balance = $4
//	WHERE id = $1 AND (token, sequence) < ($2, $3)
//
// which has failed if it changes no row; claim is the same without the balance,
// and reads it in the same transaction.
type table struct {
	mu   sync.Mutex
	rows map[string]*row
}

type row struct {
	fence   fence
	balance int
}

var errFenced = errors.New("a later write or a later owner has been here")

// claim refuses from now on whatever was sent before it, then reads the row.
func (t *table) claim(id string, f fence) (balance int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if !f.after(r.fence) {
		return 0, errFenced
	}
	r.fence = f
	return r.balance, nil
}

func (t *table) write(id string, f fence, balance int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[id]
	if !f.after(r.fence) {
		return errFenced
	}
	r.fence, r.balance = f, balance
	return nil
}

// bank keeps accounts in memory and writes them through.
type bank struct {
	s        *slicelet.Slicelet
	store    *table
	mu       sync.Mutex
	open     map[string]account
	sequence uint64 // of the newest access to the store
}

type account struct {
	slicelet.Handle // under which it was read
	balance         int
}

// fence is that of the next access to the store.
func (b *bank) fence(h slicelet.Handle) fence {
	b.sequence++
	return fence{h.FencingToken(), b.sequence}
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
	if !ok || !a.AssignedContinuously() { // another task owned it meanwhile
		balance, err := b.store.claim(id, b.fence(h))
		if err != nil {
			return http.StatusMisdirectedRequest, err
		}
		a = account{h, balance}
	}
	a.balance += amount
	// The process may be stopped here for an hour. No check before this line can
	// know; the store does.
	if err := b.store.write(id, b.fence(a.Handle), a.balance); err != nil {
		// Refused, or of unknown outcome: it may still arrive. The next request claims
		// the row anew, and what was sent before that is refused from then on.
		delete(b.open, id)
		return http.StatusServiceUnavailable, err
	}
	b.open[id] = a
	return http.StatusOK, nil
}

// A server in consistent mode that writes through to a store, and what happens
// there when a write arrives late, and when the process is stopped between its last
// check and its write.
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
	balance, err := t.claim("alice", fence{5, 1})
	fmt.Println("1 reads", balance, err)
	// 1 writes 10 and gets no answer. It claims the row anew, writes 20 and is answered.
	balance, err = t.claim("alice", fence{5, 3})
	fmt.Println("1 reads", balance, err)
	fmt.Println("1 writes 20:", t.write("alice", fence{5, 4}, 20))
	fmt.Println("the first write arrives:", t.write("alice", fence{5, 2}, 10))
	// 1 has checked its handle, will write 30, and is stopped. Its lease runs out.
	balance, err = t.claim("alice", fence{6, 1})
	fmt.Println("2 reads", balance, err)
	fmt.Println("1 goes on and writes 30:", t.write("alice", fence{5, 5}, 30))
	fmt.Println("2 writes 21:", t.write("alice", fence{6, 2}, 21))
	// Output:
	// 1 reads 0 <nil>
	// 1 reads 0 <nil>
	// 1 writes 20: <nil>
	// the first write arrives: a later write or a later owner has been here
	// 2 reads 20 <nil>
	// 1 goes on and writes 30: a later write or a later owner has been here
	// 2 writes 21: <nil>
}
