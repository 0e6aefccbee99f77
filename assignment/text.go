package assignment

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The first line of the text form: what it is and which version.
const textMagic = "slicer-assignment 1"

// String names the assignment in a log line; MarshalText gives all of it.
func (a *Assignment) String() string {
	return fmt.Sprintf("job %s generation %d (%d tasks, %d slices)", a.h.Job, a.h.Generation, a.NumTasks(), a.NumSlices())
}

// MarshalText returns the text form. See AppendText.
func (a *Assignment) MarshalText() ([]byte, error) { return a.AppendText(nil) }

// AppendText appends the text form, which holds everything that the assignment
// does and reads like this:
//
//	slicer-assignment 1
//	job cache
//	store 9c1d0f3a5577e802
//	# made 2026-03-01T12:00:00Z
//	generation 1772366400000
//	previous 1772366395000
//	horizon 0
//	# index, name
//	task 0 cache-a address=10.0.0.1:8080 zone=eu-1 weight=1 state=running incarnation=5be04d9a31c77f01
//	task 1 cache-b address=10.0.0.2:8080 zone= weight=2 state=draining incarnation=77aa04d9a3ee0192
//	# first key, owners@since
//	slice 0000000000000000 cache-a@1772366395000
//	slice 4000000000000000 cache-a@1772366400000 cache-b@1772366395000
//	checksum 0f66a3b1b15fb8a2
//	end
//
// A slice ends where the next begins. Blank lines and lines that begin with #
// say nothing. The checksum line may be left out when a text is written by hand.
// It never fails; the error is there for encoding.TextAppender.
func (a *Assignment) AppendText(b []byte) ([]byte, error) {
	b = append(b, textMagic+"\njob "...)
	b = append(b, a.h.Job...)
	b = append(b, "\nstore "...)
	b = appendHex16(b, a.h.StoreID)
	b = append(b, "\n# made "...)
	b = a.h.Generation.Time().UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, "\ngeneration "...)
	b = strconv.AppendInt(b, int64(a.h.Generation), 10)
	b = append(b, "\nprevious "...)
	b = strconv.AppendInt(b, int64(a.h.Previous), 10)
	b = append(b, "\nhorizon "...)
	b = strconv.AppendInt(b, int64(a.h.Horizon), 10)
	b = append(b, "\n# index, name\n"...)
	for i := range a.tasks {
		b = appendTask(b, &a.tasks[i])
	}
	b = append(b, "# first key, owners@since\n"...)
	for i, start := range a.c.Starts {
		b = append(b, "slice "...)
		b = appendHex16(b, uint64(start))
		r := a.Replicas(i)
		for j := range r.Len() {
			b = append(b, ' ')
			b = append(b, r.At(j).Name...)
			b = append(b, '@')
			b = strconv.AppendInt(b, int64(r.Since(j)), 10)
		}
		b = append(b, '\n')
	}
	b = append(b, "checksum "...)
	b = appendHex16(b, a.Checksum())
	return append(b, "\nend\n"...), nil
}

func appendTask(b []byte, t *Task) []byte {
	b = append(b, "task "...)
	b = strconv.AppendUint(b, uint64(t.Index), 10)
	b = append(b, ' ')
	b = append(b, t.Name...)
	b = append(b, " address="...)
	b = append(b, t.Address...)
	b = append(b, " zone="...)
	b = append(b, t.Zone...)
	b = append(b, " weight="...)
	b = strconv.AppendFloat(b, t.Weight, 'g', -1, 64)
	b = append(b, " state="...)
	b = append(b, t.State.String()...)
	b = append(b, " incarnation="...)
	b = appendHex16(b, t.Incarnation)
	return append(b, '\n')
}

// Parse reads the text form and validates it as New does. Its errors name the
// line and the field.
func Parse(text []byte) (*Assignment, error) {
	if len(text) > MaxTextSize {
		return nil, &FieldError{"assignment text", len(text), fmt.Sprintf("at most %d bytes", MaxTextSize)}
	}
	p := textParser{seen: make(map[string]bool)}
	for len(text) > 0 && !p.ended {
		var line []byte
		line, text, _ = bytes.Cut(text, []byte("\n"))
		p.line++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		if err := p.take(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
	}
	switch {
	case !p.ended:
		return nil, fmt.Errorf("line %d: %w", p.line, &FieldError{"last line", "missing", `"end": the text is cut short`})
	case len(bytes.TrimSpace(text)) > 0:
		return nil, fmt.Errorf("line %d: %w", p.line, &FieldError{"end", string(text[:min(len(text), 80)]), "nothing after it"})
	}
	return p.finish(p.checksum, p.seen["checksum"], func(at int) int { return at })
}

type textParser struct {
	gatherer
	line     int
	seen     map[string]bool // words that may come once
	checksum uint64
	ended    bool
}

func (p *textParser) take(line []byte) error {
	if !p.seen[""] {
		p.seen[""] = true
		if string(line) != textMagic {
			return &FieldError{"first line", string(line), strconv.Quote(textMagic)}
		}
		return nil
	}
	word, rest, _ := bytes.Cut(line, []byte(" "))
	rest = bytes.TrimSpace(rest)
	switch string(word) {
	case "task":
		return p.takeTask(strings.Fields(string(rest)))
	case "slice":
		return p.takeSlice(rest)
	}
	if p.seen[string(word)] {
		return &FieldError{string(word), string(rest), "one line of it"}
	}
	value := string(rest[:min(len(rest), 512)])
	var err error
	switch string(word) {
	case "job":
		p.h.Job, err = value, ValidateJobName(value)
	case "store":
		p.h.StoreID, err = parseHex16("store", value)
	case "generation":
		p.h.Generation, err = parseGeneration("generation", value)
	case "previous":
		p.h.Previous, err = parseGeneration("previous", value)
	case "horizon":
		p.h.Horizon, err = parseGeneration("horizon", value)
	case "checksum":
		p.checksum, err = parseHex16("checksum", value)
	case "end":
		return p.end(value)
	default:
		return &FieldError{"line", string(word), "job, store, generation, previous, horizon, task, slice, checksum or end"}
	}
	p.seen[string(word)] = true
	return err
}

func (p *textParser) end(value string) error {
	if value != "" {
		return &FieldError{"end", value, "nothing after it"}
	}
	for _, word := range []string{"job", "store", "generation", "previous", "horizon"} {
		if !p.seen[word] {
			return &FieldError{word, "missing", "a line of it before the end"}
		}
	}
	p.ended = true
	return nil
}

var taskAttributes = [...]string{"address=", "zone=", "weight=", "state=", "incarnation="}

func (p *textParser) takeTask(f []string) error {
	if len(f) != 2+len(taskAttributes) {
		return &FieldError{"task", strings.Join(f, " "), "INDEX NAME " + strings.Join(taskAttributes[:], ".. ") + ".."}
	}
	v := f[2:]
	for i, name := range taskAttributes {
		value, ok := strings.CutPrefix(v[i], name)
		if !ok {
			return &FieldError{"task " + f[1], v[i], name + "..."}
		}
		v[i] = value
	}
	t := Task{Name: f[1], Address: v[0], Zone: v[1]}
	index, err := strconv.ParseUint(f[0], 10, 32)
	if err != nil {
		return &FieldError{"task index", f[0], fmt.Sprintf("below %d", MaxTasks)}
	}
	t.Index = uint32(index)
	if t.Weight, err = strconv.ParseFloat(v[2], 64); err != nil {
		return &FieldError{"task weight", v[2], "0.000001 to 1000000"}
	}
	if t.State, err = ParseTaskState(v[3]); err != nil {
		return err
	}
	if t.Incarnation, err = parseHex16("task incarnation", v[4]); err != nil {
		return err
	}
	return p.task(t)
}

func (p *textParser) takeSlice(rest []byte) error {
	first, rest, _ := bytes.Cut(rest, []byte(" "))
	start, err := ParseSliceKey(string(first[:min(len(first), 80)]))
	if err != nil {
		return err
	}
	for len(rest) > 0 {
		var owner []byte
		owner, rest, _ = bytes.Cut(rest, []byte(" "))
		if len(owner) == 0 {
			continue
		}
		at := bytes.LastIndexByte(owner, '@')
		if at < 1 || at > MaxNameLen || len(owner)-at > 20 {
			return &FieldError{"owner", string(owner[:min(len(owner), 80)]), "a task's name, @, and the generation since which it owns the slice"}
		}
		since, err := parseGeneration("since", string(owner[at+1:]))
		if err != nil {
			return err
		}
		if err := p.owner(owner[:at], since, p.line); err != nil {
			return err
		}
	}
	return p.slice(start)
}

func parseGeneration(field, s string) (Generation, error) {
	g, err := strconv.ParseUint(s, 10, 63)
	if err != nil || Generation(g) > MaxGeneration {
		return 0, &FieldError{field, s, fmt.Sprintf("0 to %d", MaxGeneration)}
	}
	return Generation(g), nil
}
