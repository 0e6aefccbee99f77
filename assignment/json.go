package assignment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// MarshalJSON returns the JSON form, which holds everything that the assignment
// does: keys, ids and checksum as hexadecimal strings, generations as numbers.
//
//	{"job":"cache","store_id":"9c1d0f3a5577e802","generation":1772366400000,"previous":1772366395000,"horizon":0,
//	 "tasks":[{"index":0,"name":"cache-a","incarnation":"5be04d9a31c77f01","address":"10.0.0.1:8080","zone":"eu-1","weight":1,"state":"running"}],
//	 "slices":[{"start":"0000000000000000","end":"8000000000000000","replicas":[{"task":"cache-a","since":1772366400000}]}],
//	 "checksum":"0f66a3b1b15fb8a2"}
//
// It never fails.
func (a *Assignment) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 256+192*len(a.tasks)+128*len(a.c.Owners))
	text := func(key, v string) { b = strconv.AppendQuote(append(b, key...), v) } // printable ASCII: Go quotes it as JSON does
	number := func(key string, v int64) { b = strconv.AppendInt(append(b, key...), v, 10) }
	text(`{"job":`, a.h.Job)
	text(`,"store_id":`, hex16(a.h.StoreID))
	number(`,"generation":`, int64(a.h.Generation))
	number(`,"previous":`, int64(a.h.Previous))
	number(`,"horizon":`, int64(a.h.Horizon))
	b = append(b, `,"tasks":[`...)
	for i, t := range a.tasks {
		if i > 0 {
			b = append(b, ',')
		}
		number(`{"index":`, int64(t.Index))
		text(`,"name":`, t.Name)
		text(`,"incarnation":`, hex16(t.Incarnation))
		text(`,"address":`, t.Address)
		text(`,"zone":`, t.Zone)
		b = strconv.AppendFloat(append(b, `,"weight":`...), t.Weight, 'g', -1, 64)
		text(`,"state":`, t.State.String())
		b = append(b, '}')
	}
	b = append(b, `],"slices":[`...)
	for i := range a.c.Starts {
		if i > 0 {
			b = append(b, ',')
		}
		s, r := a.Slice(i), a.Replicas(i)
		b = append(appendHex16(append(b, `{"start":"`...), uint64(s.Start)), '"')
		b = append(appendHex16(append(b, `,"end":"`...), uint64(s.End)), '"')
		b = append(b, `,"replicas":[`...)
		for j := range r.Len() {
			if j > 0 {
				b = append(b, ',')
			}
			text(`{"task":`, r.At(j).Name)
			number(`,"since":`, int64(r.Since(j)))
			b = append(b, '}')
		}
		b = append(b, `]}`...)
	}
	text(`],"checksum":`, hex16(a.Checksum()))
	return append(b, '}'), nil
}

// ParseJSON reads the JSON form and validates it as New does. Members may come
// in any order, none twice and none that is not known; the ends of slices and
// the checksum may be left out. Errors name the line and the field.
func ParseJSON(data []byte) (*Assignment, error) {
	if len(data) > MaxTextSize {
		return nil, &FieldError{"assignment JSON", len(data), fmt.Sprintf("at most %d bytes", MaxTextSize)}
	}
	p := jsonParser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	seen, err := p.object("assignment", p.top)
	if err == nil {
		if _, err = p.dec.Token(); err == io.EOF {
			err = missing(seen, "job", "store_id", "generation", "previous", "horizon", "tasks", "slices")
		} else if err == nil {
			err = errors.New("something follows the assignment")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", p.line(p.at()), err)
	}
	return p.finish(p.checksum, seen["checksum"], p.line)
}

type jsonParser struct {
	gatherer
	data     []byte
	dec      *json.Decoder
	checksum uint64
}

// at is the end of what was read last.
func (p *jsonParser) at() int { return min(int(p.dec.InputOffset()), len(p.data)) }

func (p *jsonParser) line(at int) int { return 1 + bytes.Count(p.data[:at], []byte("\n")) }

func (p *jsonParser) top(key string) (err error) {
	switch key {
	case "job":
		if err = p.value(key, &p.h.Job); err == nil {
			err = ValidateJobName(p.h.Job)
		}
	case "store_id":
		p.h.StoreID, err = p.hex(key)
	case "generation":
		p.h.Generation, err = p.generation(key)
	case "previous":
		p.h.Previous, err = p.generation(key)
	case "horizon":
		p.h.Horizon, err = p.generation(key)
	case "checksum":
		p.checksum, err = p.hex(key)
	case "tasks":
		err = p.array(key, p.takeTask)
	case "slices":
		var end SliceKey
		if err = p.array(key, func(path string) error { return p.takeSlice(path, &end) }); err == nil && end != KeyspaceEnd && end != 0 {
			err = &FieldError{"slices: end of the last", end.String(), KeyspaceEnd.String()}
		}
	default:
		err = unknown(key, "job, store_id, generation, previous, horizon, tasks, slices or checksum")
	}
	return err
}

func (p *jsonParser) takeTask(path string) error {
	var t Task
	seen, err := p.object(path, func(key string) (err error) {
		field := path + "." + key
		switch key {
		case "index":
			err = p.value(field, &t.Index)
		case "name":
			err = p.value(field, &t.Name)
		case "incarnation":
			t.Incarnation, err = p.hex(field)
		case "address":
			err = p.value(field, &t.Address)
		case "zone":
			err = p.value(field, &t.Zone)
		case "weight":
			err = p.value(field, &t.Weight)
		case "state":
			err = p.value(field, &t.State)
		default:
			err = unknown(field, "index, name, incarnation, address, zone, weight or state")
		}
		return err
	})
	if err == nil {
		err = missing(seen, "index", "name", "incarnation", "address", "weight", "state")
	}
	if err == nil {
		err = p.task(t)
	}
	return err
}

// takeSlice checks that the slice begins at *end, if that is not 0, and sets
// *end to where the slice says that it ends, 0 if it does not say.
func (p *jsonParser) takeSlice(path string, end *SliceKey) error {
	var s Slice
	seen, err := p.object(path, func(key string) error {
		field := path + "." + key
		switch key {
		case "start":
			return p.value(field, &s.Start)
		case "end":
			return p.value(field, &s.End)
		case "replicas":
			return p.array(field, p.takeReplica)
		}
		return unknown(field, "start, end or replicas")
	})
	if err == nil {
		err = missing(seen, "start", "replicas")
	}
	if err == nil && seen["end"] {
		err = s.Valid()
	}
	if err == nil && *end != 0 && s.Start != *end {
		err = &FieldError{path + ".start", s.Start.String(), end.String() + ", where the slice before ends"}
	}
	if *end = s.End; err == nil {
		err = p.slice(s.Start)
	}
	return err
}

func (p *jsonParser) takeReplica(path string) error {
	var name string
	var since Generation
	seen, err := p.object(path, func(key string) (err error) {
		switch field := path + "." + key; key {
		case "task":
			err = p.value(field, &name)
		case "since":
			since, err = p.generation(field)
		default:
			err = unknown(field, "task or since")
		}
		return err
	})
	if err == nil {
		err = missing(seen, "task", "since")
	}
	if err == nil {
		err = p.owner([]byte(name), since, p.at())
	}
	return err
}

// object reads an object; member reads the value of each key, of which none
// comes twice.
func (p *jsonParser) object(path string, member func(key string) error) (seen map[string]bool, err error) {
	if err := p.open(path, '{', "an object"); err != nil {
		return nil, err
	}
	seen = make(map[string]bool)
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, cut(err)
		}
		key := token.(string) // More and Token see to it
		if seen[key] {
			return nil, &FieldError{path + " key", key, "each key once"}
		}
		seen[key] = true
		if err := member(key); err != nil {
			return nil, err
		}
	}
	_, err = p.dec.Token()
	return seen, cut(err)
}

func (p *jsonParser) array(path string, element func(path string) error) error {
	if err := p.open(path, '[', "an array"); err != nil {
		return err
	}
	for i := 0; p.dec.More(); i++ {
		if err := element(path + "[" + strconv.Itoa(i) + "]"); err != nil {
			return err
		}
	}
	_, err := p.dec.Token()
	return cut(err)
}

func (p *jsonParser) open(path string, delim json.Delim, what string) error {
	token, err := p.dec.Token()
	if err != nil {
		return cut(err)
	}
	if token != delim {
		return &FieldError{path, fmt.Sprint(token), what}
	}
	return nil
}

func (p *jsonParser) value(path string, v any) error {
	err := p.dec.Decode(v)
	var wrong *json.UnmarshalTypeError
	var field *FieldError
	switch {
	case errors.As(err, &wrong):
		return &FieldError{path, wrong.Value, wrong.Type.String()}
	case errors.As(err, &field):
		return fmt.Errorf("%s: %w", path, err)
	case err == nil && bytes.HasSuffix(p.data[:p.at()], []byte("null")):
		return &FieldError{path, "null", "a value"}
	}
	return cut(err)
}

func (p *jsonParser) hex(path string) (uint64, error) {
	var s string
	if err := p.value(path, &s); err != nil {
		return 0, err
	}
	return parseHex16(path, s)
}

func (p *jsonParser) generation(path string) (g Generation, err error) {
	if err = p.value(path, &g); err == nil && (g < 0 || g > MaxGeneration) {
		err = &FieldError{path, int64(g), fmt.Sprintf("0 to %d", MaxGeneration)}
	}
	return g, err
}

// cut says plainly that the input ends too soon.
func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the JSON is cut short")
	}
	return err
}

func unknown(field, allowed string) error { return &FieldError{"key", field, allowed} }

func missing(seen map[string]bool, keys ...string) error {
	for _, k := range keys {
		if !seen[k] {
			return &FieldError{k, "missing", "given"}
		}
	}
	return nil
}
