// Package wire stands between the nouns of package assignment and their
// protobuf form. Encoding is deterministic. Decoding is bounded and validates
// everything: bytes come from the network, the store and the disk.
//
// An assignment is sent in columns: a slice of one replica takes at most 10
// bytes, 7 to 8 for its start (a difference from the slice before), 1 or 2 for
// its owner, 1 for since when.
package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// MaxEncodedSize bounds an encoded Assignment or Delta, bytes.
	MaxEncodedSize = 256 << 20
	// MaxChunk is the most that one Chunk holds, bytes; messages stay well below 1 MiB.
	MaxChunk = 512 << 10
	// MaxStragglers is how many subscribers without the newest assignment a message names.
	MaxStragglers = 16

	// maxSinceTable is what a since entry, a byte, could refer to.
	maxSinceTable = 255
)

// ErrMalformed is matched by every decoding error.
var ErrMalformed = errors.New("malformed")

// deterministic makes equal messages equal bytes within one build.
var deterministic = proto.MarshalOptions{Deterministic: true}

// malformed wraps err so that it matches ErrMalformed as well as itself.
func malformed(what string, err error) error {
	return fmt.Errorf("%w %s: %w", ErrMalformed, what, err)
}

func unmarshal(what string, data []byte, m proto.Message) error {
	if len(data) > MaxEncodedSize {
		return malformed(what, fmt.Errorf("%d bytes, at most %d are allowed", len(data), MaxEncodedSize))
	}
	if err := countLists(data, m.ProtoReflect().Descriptor(), make(map[protoreflect.Name]int)); err != nil {
		return malformed(what, err)
	}
	// What a newer sender adds is not kept: nothing here sends a message on.
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, m); err != nil {
		return malformed(what, err)
	}
	return nil
}
