package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slicer-project/slicer/slicelet"
	"github.com/slicer-project/slicer/test/kit/boottime"
	"github.com/slicer-project/slicer/test/system/judge/history"
)

// Request is a client's operation.
type Request struct {
	Key   string
	Write bool
	Arg   string
	Touch bool // only to be served, and not written down
}

// Response is the owner's answer. Refused: nothing was done.
type Response struct {
	Refused    bool
	Generation int64 // that the refusing owner knows
	Unknown    bool  // the store did not answer
	Got        string
}

// storeTimeout bounds a request to the store.
const storeTimeout = 2 * time.Second

// registers are those that an owner keeps in memory.
type registers struct {
	cfg   Config
	log   *history.Log
	name  string // of the owner
	s     *slicelet.Slicelet
	seq   atomic.Uint64
	peers *peers

	mu  sync.Mutex
	all map[string]*held
}

// held is a register in memory: good as long as its handle is.
type held struct {
	mu     sync.Mutex
	loaded bool
	handle slicelet.Handle
	value  string
}

func (r *registers) get(key string) *held {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all[key] == nil {
		r.all[key] = &held{}
	}
	return r.all[key]
}

// check asks a handle and notes when.
func check(u *history.Use, h slicelet.Handle) bool {
	began := boottime.Now()
	ok := h.AssignedContinuously()
	ended := boottime.Now()
	if ok {
		u.N++
		u.CheckBegan, u.CheckEnd = began, ended
	}
	return ok
}

// do carries out a request if the key is the owner's own, from memory; a write
// goes to the store with the handle's token before it is answered.
func (r *registers) do(req Request, resp *Response) {
	u := history.Use{Owner: r.name, Key: req.Key, TakenBegan: boottime.Now()}
	h := r.s.Handle(req.Key)
	u.Taken = boottime.Now()
	u.Token = h.FencingToken()
	if !h.Owned() {
		r.refuse(resp)
		return
	}
	if req.Touch {
		if !h.AssignedContinuously() {
			r.refuse(resp)
		}
		return
	}
	// The handle that the value is held by is an older one, perhaps; the use is of this one.
	defer func() { r.log.Used(u) }()
	reg := r.get(req.Key)
	reg.mu.Lock()
	defer reg.mu.Unlock()
	if !check(&u, h) {
		r.refuse(resp)
		return
	}
	if !reg.loaded || !reg.handle.AssignedContinuously() {
		got, err := r.store(StoreRequest{Key: req.Key}, h)
		if err != nil || got.Stale {
			r.refuse(resp) // it was only a read
			return
		}
		reg.loaded, reg.handle, reg.value = true, h, got.Value
	}
	before := reg.value
	if !check(&u, h) || !reg.handle.AssignedContinuously() {
		r.refuse(resp)
		return
	}
	if !req.Write {
		resp.Got = before
		return
	}
	// From here on the key may be lost, and the process may stand still for as long
	// as it takes another owner to take over: that is what the token is for.
	if r.cfg.Think > 0 {
		time.Sleep(rand.N(r.cfg.Think))
	}
	got, err := r.store(StoreRequest{Key: req.Key, Write: true, Value: req.Arg}, h)
	switch {
	case errors.Is(err, errNotSent):
		r.refuse(resp)
	case err != nil:
		reg.loaded = false // it may be stored or not, or yet be stored
		resp.Unknown = true
	case got.Stale:
		reg.loaded = false
		r.refuse(resp)
	default:
		reg.value = req.Arg
		resp.Got = before
	}
}

func (r *registers) refuse(resp *Response) {
	resp.Refused = true
	if a := r.s.Assignment(); a != nil {
		resp.Generation = int64(a.Generation())
	}
}

func (r *registers) store(req StoreRequest, h slicelet.Handle) (resp StoreResponse, err error) {
	req.Fence = Fence{h.FencingToken(), r.seq.Add(1)}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	err = r.peers.call(ctx, r.cfg.Store, "Registers.Do", req, &resp)
	return resp, err
}
