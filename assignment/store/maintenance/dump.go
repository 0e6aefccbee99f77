package maintenance

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/slicer-project/slicer/assignment/store/internal/record"
	slicerv1 "github.com/slicer-project/slicer/proto/slicer/v1"
)

// Dumped is a record in readable form.
type Dumped struct {
	Key   string          `json:"key"`
	Bytes int             `json:"bytes"`
	Value json.RawMessage `json:"value,omitempty"` // nothing where only the size says something
	Error string          `json:"error,omitempty"`
}

// Dump calls f with each record, or with those of one job if it is not empty, in order
// of key. Of assignments it gives the sizes.
func Dump(s *Snapshot, job string, f func(Dumped) error) error {
	for _, kv := range s.Records {
		if job != "" && !ofJob(kv.Key, job) {
			continue
		}
		d := Dumped{Key: kv.Key, Bytes: len(kv.Value)}
		value, err := readable(kv)
		if d.Value = value; err != nil {
			d.Error = err.Error()
		}
		if err := f(d); err != nil {
			return err
		}
	}
	return nil
}

// ofJob reports whether a key has the job's name as a part.
func ofJob(key, job string) bool {
	return strings.Contains(key+"/", "/"+job+"/")
}

func readable(kv Record) (json.RawMessage, error) {
	var l record.Layout
	kind, rest, _ := strings.Cut(kv.Key, "/")
	var m proto.Message
	switch {
	case kv.Key == l.ID():
		m = &slicerv1.StoredIdentity{}
	case kind == "jobs" && strings.HasSuffix(rest, "/config"):
		m = &slicerv1.StoredJob{}
	case kind == "jobs" && strings.HasSuffix(rest, "/head"):
		m = &slicerv1.StoredHead{}
	case kind == "jobs" && strings.HasSuffix(rest, "/overrides"):
		m = &slicerv1.Overrides{}
	case kind == "names":
		m = &slicerv1.StoredNames{}
	case kind == "gone":
		m = &slicerv1.StoredTombstone{}
	case kind == "generations":
		m = &slicerv1.StoredGeneration{}
	case kind == "history":
		m = &slicerv1.HistoryEntry{}
	case kind == "assigners":
		m = &slicerv1.Candidate{}
	case kind == "lease", kind == "lease-suspended":
		return text(l, kv), nil
	default:
		_, err := l.Open(kv.Key, kv.Value)
		return nil, err
	}
	body, err := l.Open(kv.Key, kv.Value)
	if err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, record.Corrupt(kv.Key, "%w", err)
	}
	if g, ok := m.(*slicerv1.StoredGeneration); ok {
		for _, b := range []*slicerv1.StoredBlob{g.GetDelta(), g.GetWhole()} {
			if b != nil {
				b.Inline = nil // no more than its size is readable
			}
		}
	}
	out, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, record.Corrupt(kv.Key, "%w", err)
	}
	var b bytes.Buffer
	err = json.Compact(&b, out) // whose spaces protojson varies
	return b.Bytes(), err
}

// text is a lease's record, which in etcd is a text and in Pebble sealed.
func text(l record.Layout, kv Record) json.RawMessage {
	value := kv.Value
	if body, err := l.Open(kv.Key, kv.Value); err == nil {
		value = body
	}
	var out []byte
	if utf8.Valid(value) && !bytes.ContainsFunc(value, unicode.IsControl) {
		out, _ = json.Marshal(string(value))
	} else {
		out, _ = json.Marshal(value)
	}
	return out
}
