package assignment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// ParseJSON reads the JSON form and validates it as New does. Members may come
// in any order, none twice and none that is not known; the ends of slices and
// the checksum may be left out. Errors name the line and the field.
func ParseJSON(data []byte) (*Assignment, error) {
	if len(data) > MaxTextSize {
		return nil, &FieldError{"assignment JSON", len(data), fmt.Sprintf("at most %d bytes", MaxTextSize)}
	}
	p := jsonParser{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	seen, err := p.object(p.top, "job", "store_id", "generation", "previous", "horizon", "tasks", "slices")
	if err == nil {
		if _, err = p.dec.Token(); err == io.EOF {
			err = nil
		} else if err == nil {
			err = errors.New("something follows the assignment")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", p.line(p.at()), err)
	}
	return p.finish(p.checksum, slices.Contains(seen, "checksum"), p.line)
}

type jsonParser struct {
	gatherer
	data     []byte
	dec      *json.Decoder
	path     []byte // to the value being read, for errors
	checksum uint64
}

// at is the end of what was read last.
func (p *jsonParser) at() int { return min(int(p.dec.InputOffset()), len(p.data)) }

func (p *jsonParser) line(at int) int { return 1 + bytes.Count(p.data[:at], []byte("\n")) }

func (p *jsonParser) top(key string) (err error) {
	switch key {
	case "job":
		if err = p.value(&p.h.Job); err == nil {
			err = ValidateJobName(p.h.Job)
		}
	case "store_id":
		p.h.StoreID, err = p.hex()
	case "generation":
		p.h.Generation, err = p.generation()
	case "previous":
		p.h.Previous, err = p.generation()
	case "horizon":
		p.h.Horizon, err = p.generation()
	case "checksum":
		p.checksum, err = p.hex()
	case "tasks":
		err = p.array(p.takeTask)
	case "slices":
		var end SliceKey
		if err = p.array(func() error { return p.takeSlice(&end) }); err == nil && end != KeyspaceEnd && end != 0 {
			err = &FieldError{"slices: end of the last", end.String(), KeyspaceEnd.String()}
		}
	default:
		err = p.unknown("job, store_id, generation, previous, horizon, tasks, slices or checksum")
	}
	return err
}

func (p *jsonParser) takeTask() error {
	var t Task
	_, err := p.object(func(key string) (err error) {
		switch key {
		case "index":
			err = p.value(&t.Index)
		case "name":
			err = p.value(&t.Name)
		case "incarnation":
			t.Incarnation, err = p.hex()
		case "address":
			err = p.value(&t.Address)
		case "zone":
			err = p.value(&t.Zone)
		case "weight":
			err = p.value(&t.Weight)
		case "state":
			err = p.value(&t.State)
		default:
			err = p.unknown("index, name, incarnation, address, zone, weight or state")
		}
		return err
	}, "index", "name", "incarnation", "address", "weight", "state")
	if err != nil {
		return err
	}
	return p.task(t)
}

// takeSlice checks that the slice begins at *end, if that is not 0, and sets
// *end to where the slice says that it ends, 0 if it does not say.
func (p *jsonParser) takeSlice(end *SliceKey) error {
	var s Slice
	seen, err := p.object(func(key string) error {
		switch key {
		case "start":
			return p.value(&s.Start)
		case "end":
			return p.value(&s.End)
		case "replicas":
			return p.array(p.takeReplica)
		}
		return p.unknown("start, end or replicas")
	}, "start", "replicas")
	if err == nil && slices.Contains(seen, "end") {
		err = s.Valid()
	}
	if err == nil && *end != 0 && s.Start != *end {
		err = &FieldError{string(p.path) + ".start", s.Start.String(), end.String() + ", where the slice before ends"}
	}
	if err != nil {
		return err
	}
	*end = s.End
	return p.slice(s.Start)
}

func (p *jsonParser) takeReplica() error {
	var name string
	var since Generation
	_, err := p.object(func(key string) (err error) {
		switch key {
		case "task":
			err = p.value(&name)
		case "since":
			since, err = p.generation()
		default:
			err = p.unknown("task or since")
		}
		return err
	}, "task", "since")
	if err != nil {
		return err
	}
	return p.owner([]byte(name), since, p.at())
}

// object reads an object; member reads the value of each key. No key comes
// twice and the required ones come.
func (p *jsonParser) object(member func(key string) error, required ...string) (seen []string, err error) {
	if err := p.open('{', "an object"); err != nil {
		return nil, err
	}
	n := len(p.path)
	seen = make([]string, 0, 8)
	for p.dec.More() {
		token, err := p.dec.Token()
		if err != nil {
			return nil, cut(err)
		}
		key := token.(string) // nothing else is a token in this place
		if p.path = p.path[:n]; n > 0 {
			p.path = append(p.path, '.')
		}
		p.path = append(p.path, key[:min(len(key), 80)]...)
		if slices.Contains(seen, key) {
			return nil, &FieldError{"key", string(p.path), "each key once"}
		}
		seen = append(seen, key)
		if err := member(key); err != nil {
			return nil, err
		}
	}
	p.path = p.path[:n]
	for _, key := range required {
		if !slices.Contains(seen, key) {
			return nil, &FieldError{"key", "none", key + " in " + p.place()}
		}
	}
	_, err = p.dec.Token()
	return seen, cut(err)
}

func (p *jsonParser) array(element func() error) error {
	if err := p.open('[', "an array"); err != nil {
		return err
	}
	n := len(p.path)
	for i := 0; p.dec.More(); i++ {
		p.path = append(strconv.AppendInt(append(p.path[:n], '['), int64(i), 10), ']')
		if err := element(); err != nil {
			return err
		}
	}
	p.path = p.path[:n]
	_, err := p.dec.Token()
	return cut(err)
}

func (p *jsonParser) open(delim json.Delim, what string) error {
	token, err := p.dec.Token()
	if err != nil {
		return cut(err)
	}
	if token != delim {
		return &FieldError{p.place(), fmt.Sprint(token), what}
	}
	return nil
}

func (p *jsonParser) value(v any) error {
	err := p.dec.Decode(v)
	if err == nil {
		if bytes.HasSuffix(p.data[:p.at()], []byte("null")) {
			return &FieldError{p.place(), "null", "a value"}
		}
		return nil
	}
	var wrong *json.UnmarshalTypeError
	var field *FieldError
	switch {
	case errors.As(err, &wrong):
		return &FieldError{p.place(), wrong.Value, wrong.Type.String()}
	case errors.As(err, &field):
		return fmt.Errorf("%s: %w", p.path, err)
	}
	return cut(err)
}

func (p *jsonParser) hex() (uint64, error) {
	var s string
	if err := p.value(&s); err != nil {
		return 0, err
	}
	return parseHex16(p.place(), s)
}

func (p *jsonParser) generation() (g Generation, err error) {
	if err = p.value(&g); err == nil && (g < 0 || g > MaxGeneration) {
		err = &FieldError{p.place(), int64(g), fmt.Sprintf("0 to %d", MaxGeneration)}
	}
	return g, err
}

func (p *jsonParser) unknown(allowed string) error {
	return &FieldError{"key", string(p.path), allowed}
}

func (p *jsonParser) place() string {
	if len(p.path) == 0 {
		return "assignment"
	}
	return string(p.path)
}

// cut says plainly that the input ends too soon.
func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the JSON is cut short")
	}
	return err
}
