// Package protokey finds keys in protobuf messages, by the names of fields: for packages
// clerkgrpc and sliceletgrpc, which find the same key in the same request, so that none has to
// travel beside it.
package protokey

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/slicer-project/slicer/assignment"
)

// Limits of paths.
const (
	MaxPaths   = 16
	MaxPathLen = 256 // bytes
)

// maxKnown is of how many types of messages it is remembered where the key is. There are more
// only where a program makes types as it goes, whose messages then take a little longer.
const maxKnown = 1024

// Finder finds the key of a message: in the first of its paths that leads to one. All methods
// are safe for concurrent use.
type Finder struct {
	paths []string
	last  atomic.Pointer[place] // of the newest message
	known sync.Map              // *place by reflect.Type, or by protoreflect.MessageDescriptor
	n     atomic.Int64          // in known
}

// New returns a Finder of 1 to MaxPaths paths, or a *assignment.FieldError for the first that is
// not allowed. A path is the name of a field, as the .proto file has it, or of several with
// points between, such as user.id: all but the last are messages, and none is repeated. The last
// is a string, bytes, an integer, whose key is its decimal digits, or an enum, which counts as its
// number.
func New(paths ...string) (*Finder, error) {
	if n := len(paths); n == 0 || n > MaxPaths {
		return nil, &assignment.FieldError{Field: "key_fields", Value: fmt.Sprintf("%d paths", n), Allowed: fmt.Sprintf("1 to %d", MaxPaths)}
	}
	for _, path := range paths {
		ok := len(path) <= MaxPathLen
		for name := range strings.SplitSeq(path, ".") {
			ok = ok && protoreflect.Name(name).IsValid()
		}
		if !ok {
			return nil, &assignment.FieldError{Field: "key_fields", Value: assignment.Clip(path, 100),
				Allowed: fmt.Sprintf("names of fields with points between, such as user.id, of at most %d bytes", MaxPathLen)}
		}
	}
	return &Finder{paths: append([]string(nil), paths...)}, nil
}

// String names the paths in order.
func (f *Finder) String() string { return strings.Join(f.paths, ", ") }

// Find returns the key of a message. It is not ok if the request is none, if its type has none
// of the fields, or if none is set. A field that cannot tell whether it is set, as in proto3
// without "optional", counts as set if it is an integer, and if it is not empty. It does not
// allocate but to make a string of bytes or of a number above 99. The method is not looked at: it
// makes Find fit clerkgrpc.Config.Key and sliceletgrpc.Config.Key.
func (f *Finder) Find(_ string, request any) (key string, ok bool) {
	t := reflect.TypeOf(request)
	p := f.last.Load()
	if p == nil || p.goType != t || t == nil { // which is unusual
		m, ok := request.(proto.Message)
		if !ok {
			return "", false
		}
		if p = f.placeOf(m, t); p.goType == nil {
			return p.find(m.ProtoReflect())
		}
	}
	return p.findIn(reflect.ValueOf(request))
}

// place is where keys are in messages of a type.
type place struct {
	// goType is a pointer to a struct if all fields are the struct's own, so that they are found by
	// their index there. It is nil where they are hidden, as those of the opaque API and of oneofs
	// are: then they are found by protoreflect, in several times the time.
	goType reflect.Type
	paths  []path // those that the type has
}

type path struct {
	fields []protoreflect.FieldDescriptor
	index  []int // of the same fields in their structs
}

func (f *Finder) placeOf(m proto.Message, t reflect.Type) *place {
	if known, ok := f.known.Load(t); ok {
		f.last.Store(known.(*place))
		return known.(*place)
	}
	d := m.ProtoReflect().Descriptor()
	if known, ok := f.known.Load(d); ok {
		return known.(*place)
	}
	p := &place{goType: t}
	for _, text := range f.paths {
		fields, ok := resolve(d, text)
		if !ok {
			continue
		}
		index, ok := indexes(t, fields)
		if !ok {
			p.goType = nil
		}
		p.paths = append(p.paths, path{fields, index})
	}
	if len(p.paths) == 0 {
		p.goType = nil
	}
	if f.n.Add(1) <= maxKnown {
		if p.goType != nil {
			f.known.Store(t, p)
		} else {
			f.known.Store(d, p)
		}
	}
	return p
}

// indexes finds fields in the structs that protoc-gen-go makes, by their tags.
func indexes(t reflect.Type, fields []protoreflect.FieldDescriptor) (index []int, ok bool) {
	for _, fd := range fields {
		if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
			return nil, false
		}
		t = t.Elem()
		at := -1
		for i := range t.NumField() {
			// Such as `protobuf:"bytes,1,opt,name=type_url,json=typeUrl,proto3"`.
			tag := strings.Split(t.Field(i).Tag.Get("protobuf"), ",")
			if t.Field(i).IsExported() && len(tag) > 1 && tag[1] == strconv.Itoa(int(fd.Number())) {
				at = i
			}
		}
		if at < 0 {
			return nil, false
		}
		index, t = append(index, at), t.Field(at).Type
	}
	return index, true
}

// findIn returns the key of a message whose fields are those of a struct.
func (p *place) findIn(message reflect.Value) (key string, ok bool) {
	for i := range p.paths {
		if key, ok := p.paths[i].valueIn(message); ok {
			return key, true
		}
	}
	return "", false
}

func (p *path) valueIn(v reflect.Value) (key string, ok bool) {
	for _, i := range p.index {
		if v.IsNil() {
			return "", false
		}
		v = v.Elem().Field(i)
	}
	fd := p.fields[len(p.fields)-1]
	if v.Kind() == reflect.Pointer { // of a field that can tell whether it is set
		if v.IsNil() {
			return "", false
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		key = v.String()
	case reflect.Slice:
		if fd.HasPresence() && v.IsNil() {
			return "", false
		}
		key = string(v.Bytes())
	case reflect.Uint32, reflect.Uint64:
		return strconv.FormatUint(v.Uint(), 10), true
	default:
		return strconv.FormatInt(v.Int(), 10), true
	}
	return key, key != "" || fd.HasPresence()
}

// find returns the key of any other.
func (p *place) find(m protoreflect.Message) (key string, ok bool) {
	for i := range p.paths {
		if key, ok := value(m, p.paths[i].fields); ok {
			return key, true
		}
	}
	return "", false
}

// resolve finds the fields of a path. It is not ok if they are not there, or cannot be a key.
func resolve(d protoreflect.MessageDescriptor, path string) (fields []protoreflect.FieldDescriptor, ok bool) {
	for name := range strings.SplitSeq(path, ".") {
		if d == nil { // beyond what is no message
			return nil, false
		}
		fd := d.Fields().ByName(protoreflect.Name(name))
		if fd == nil || fd.Cardinality() == protoreflect.Repeated {
			return nil, false
		}
		fields, d = append(fields, fd), fd.Message()
	}
	switch fields[len(fields)-1].Kind() {
	case protoreflect.BoolKind, protoreflect.FloatKind, protoreflect.DoubleKind, protoreflect.MessageKind, protoreflect.GroupKind:
		return nil, false
	}
	return fields, true
}

// value is the key at the end of a path.
func value(m protoreflect.Message, fields []protoreflect.FieldDescriptor) (key string, ok bool) {
	last := len(fields) - 1
	for _, fd := range fields[:last] {
		if !m.Has(fd) {
			return "", false
		}
		m = m.Get(fd).Message()
	}
	fd := fields[last]
	if fd.HasPresence() && !m.Has(fd) {
		return "", false
	}
	switch v := m.Get(fd); fd.Kind() {
	case protoreflect.StringKind:
		key = v.String()
	case protoreflect.BytesKind:
		key = string(v.Bytes())
	case protoreflect.EnumKind:
		return strconv.FormatInt(int64(v.Enum()), 10), true
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return strconv.FormatUint(v.Uint(), 10), true
	default:
		return strconv.FormatInt(v.Int(), 10), true
	}
	return key, key != "" || fd.HasPresence()
}
