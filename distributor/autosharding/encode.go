package autosharding

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slicer-project/slicer/assignment"
)

// maxChunk is how many bytes of slices and endpoints a message holds at the most:
// with what is around them it is below 1 MiB, which is the size of gRPC's largest
// pooled buffer too.
const maxChunk = 1<<20 - 1<<10

// Field numbers. The messages are written out by hand: a slice made of messages
// would take some 400 bytes of memory before it is 46 bytes on the wire.
const (
	responseChunk, responseMetadata = 2, 3
	chunkSlice, chunkEndpoint       = 1, 2
	sliceSlice, sliceEndpoint       = 1, 2
	startKey, endKey                = 1, 2
	// Of the one field of EndpointState, PerSliceEndpointState and AssignmentMetadata.
	only = 1
)

// keySize is the size of a slice key in text form.
const keySize = 16

// encode writes an assignment as WatchShardingAssignmentResponses: chunks, then
// the metadata. Endpoints are the tasks in the order of the task table, each by all of
// its names. What lies outside of the slice keys is a slice without an endpoint on
// either side.
func encode(a *assignment.Assignment, names []naming) (messages [][]byte) {
	e := encoder{body: make([]byte, 0, maxChunk), names: len(names)}
	for _, t := range a.Tasks() {
		for _, name := range names {
			e.endpoint(name(t))
		}
	}
	e.empty(false, assignment.SliceKey(0))
	for s, r := range a.All() {
		e.slice(s, r)
	}
	e.empty(true, assignment.KeyspaceEnd)
	e.flush()
	var meta []byte
	if g := a.Generation(); g != 0 {
		meta = protowire.AppendVarint(protowire.AppendTag(nil, only, protowire.VarintType), uint64(g))
	}
	return append(e.messages, wrap(responseMetadata, meta))
}

type encoder struct {
	names    int    // of a task
	body     []byte // of the chunk that is being filled
	messages [][]byte
}

// flush ends the chunk.
func (e *encoder) flush() {
	if len(e.body) > 0 {
		e.messages = append(e.messages, wrap(responseChunk, e.body))
		e.body = e.body[:0]
	}
}

// room begins a new chunk if the next n bytes do not fit.
func (e *encoder) room(n int) {
	if len(e.body)+n > maxChunk {
		e.flush()
	}
}

func (e *encoder) endpoint(name string) {
	size := 0
	if name != "" {
		size = 1 + protowire.SizeBytes(len(name))
	}
	e.room(1 + protowire.SizeBytes(size))
	e.body = appendLen(e.body, chunkEndpoint, size)
	if name != "" {
		e.body = protowire.AppendTag(e.body, only, protowire.BytesType)
		e.body = protowire.AppendString(e.body, name)
	}
}

func (e *encoder) slice(s assignment.Slice, r assignment.Replicas) {
	const keys = 2 * (1 + 1 + keySize)
	size := 1 + protowire.SizeBytes(keys)
	for i := range r.Len() * e.names {
		size += 1 + protowire.SizeBytes(indexSize(e.index(r, i)))
	}
	e.room(1 + protowire.SizeBytes(size))
	e.body = appendLen(e.body, chunkSlice, size)
	e.body = appendLen(e.body, sliceSlice, keys)
	e.key(startKey, s.Start)
	e.key(endKey, s.End)
	for i := range r.Len() * e.names {
		p := e.index(r, i)
		e.body = appendLen(e.body, sliceEndpoint, indexSize(p))
		if p != 0 {
			e.body = protowire.AppendTag(e.body, only, protowire.VarintType)
			e.body = protowire.AppendVarint(e.body, uint64(p))
		}
	}
}

// index is the endpoint that is the i-th name of a slice's owners.
func (e *encoder) index(r assignment.Replicas, i int) int {
	return r.Position(i/e.names)*e.names + i%e.names
}

// empty is the slice of all that is before a key, or from it on, without an owner.
func (e *encoder) empty(from bool, k assignment.SliceKey) {
	const key = 1 + 1 + keySize
	e.room(2 + 2 + key)
	e.body = appendLen(e.body, chunkSlice, 2+key)
	e.body = appendLen(e.body, sliceSlice, key)
	if from {
		e.key(startKey, k)
	} else {
		e.key(endKey, k)
	}
}

func (e *encoder) key(field protowire.Number, k assignment.SliceKey) {
	const digits = "0123456789abcdef"
	var text [keySize]byte
	for i := range text {
		text[i] = digits[k>>60&15]
		k <<= 4
	}
	e.body = append(appendLen(e.body, field, keySize), text[:]...)
}

// indexSize is the size of a PerSliceEndpointState.
func indexSize(index int) int {
	if index == 0 {
		return 0 // as the default it is left out
	}
	return 1 + protowire.SizeVarint(uint64(index))
}

// appendLen begins a field of n bytes.
func appendLen(b []byte, field protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
}

// wrap is a message with one field that holds a message.
func wrap(field protowire.Number, body []byte) []byte {
	b := make([]byte, 0, 1+protowire.SizeBytes(len(body)))
	return append(appendLen(b, field, len(body)), body...)
}
