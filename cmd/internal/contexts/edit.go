package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Set makes a context, or changes one to x. The error is an *assignment.FieldError.
func (c *Config) Set(name string, x Context) error {
	if err := checkName(name); err != nil {
		return err
	}
	if _, bad := x.check("contexts." + name); bad != nil {
		return bad
	}
	if _, ok := c.Contexts[name]; !ok && len(c.Contexts) == MaxContexts {
		return refuse("contexts", name, fmt.Sprintf("at most %d contexts", MaxContexts))
	}
	c.Contexts[name] = x
	at := child(child(c.doc.Content[0], "contexts"), name)
	for i, value := range []string{x.Server, x.Cert, x.Key, x.CA} {
		if value == "" {
			_ = remove(at, contextFields[i])
		} else {
			put(at, contextFields[i], value)
		}
	}
	return nil
}

// Delete removes a context with its comments, and reports whether it was there. If it was
// the current one, none is.
func (c *Config) Delete(name string) bool {
	if _, ok := c.Contexts[name]; !ok {
		return false
	}
	delete(c.Contexts, name)
	root := c.doc.Content[0]
	_ = remove(child(root, "contexts"), name)
	if c.Current == name {
		c.Current = ""
		// What stands above it is likely to be about the file.
		if above := remove(root, "current"); above != "" {
			c.doc.HeadComment = strings.TrimLeft(c.doc.HeadComment+"\n"+above, "\n")
		}
	}
	return true
}

// Use makes a context the current one, and reports whether there is one of that name.
func (c *Config) Use(name string) bool {
	if _, ok := c.Contexts[name]; !ok {
		return false
	}
	c.Current = name
	root := c.doc.Content[0]
	if find(root, "current") < 0 {
		root.Content = append([]*yaml.Node{scalar("current"), scalar(name)}, root.Content...)
		return true
	}
	put(root, "current", name)
	return true
}

// Format writes the config as a file. Comments stay where they are, indentation becomes two
// spaces, and blank lines go.
func (c *Config) Format() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(c.doc), enc.Close()); err != nil {
		return nil, err
	}
	// A file that would be read as something else must not replace a good one.
	back, err := Parse("what is to be written", b.Bytes())
	if err != nil {
		return nil, err
	}
	if back.Current != c.Current || !maps.Equal(back.Contexts, c.Contexts) {
		return nil, errors.New("it cannot be changed without another meaning: write it by hand, as plain fields and values")
	}
	return b.Bytes(), nil
}

func scalar(value string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(value)
	return n
}

// find is where in a mapping a key stands, -1 if it does not.
func find(m *yaml.Node, key string) int {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// add appends to a mapping; one that was {} gets lines.
func add(m *yaml.Node, key string, value *yaml.Node) {
	if len(m.Content) == 0 {
		m.Style &^= yaml.FlowStyle
	}
	m.Content = append(m.Content, scalar(key), value)
}

// child is the mapping under a key of another one, made if it is not there.
func child(m *yaml.Node, key string) *yaml.Node {
	if i := find(m, key); i >= 0 {
		return m.Content[i+1]
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	add(m, key, n)
	return n
}

func put(m *yaml.Node, key, value string) {
	if i := find(m, key); i >= 0 {
		m.Content[i+1].SetString(value)
		return
	}
	add(m, key, scalar(value))
}

// remove takes a key out of a mapping, and returns the comment above it.
func remove(m *yaml.Node, key string) (comment string) {
	i := find(m, key)
	if i < 0 {
		return ""
	}
	comment = m.Content[i].HeadComment
	m.Content = append(m.Content[:i:i], m.Content[i+2:]...)
	return comment
}
