package expression

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"
)

// Get reads the value at a path. It returns no error for a value that does not exist; the result reports it. Besides keys and indexes, a
// path may have #, #(query), the wildcards * and ?, pipes, and the modifiers of gjson that take no argument.
func Get(object map[string]any, path string) (gjson.Result, error) {
	segments, err := parsePath(path)
	if err != nil {
		return gjson.Result{}, err
	}
	// Get encodes only the part of the object to which the special segments apply.
	var value any = object
	for len(segments) > 0 && !segments[0].special {
		var found bool
		if value, found = child(value, segments[0]); !found {
			return gjson.Result{}, nil
		}
		segments = segments[1:]
	}
	encoded, err := encode(value)
	if err != nil {
		return gjson.Result{}, fmt.Errorf("path %q: %w", path, err)
	}
	if len(segments) == 0 {
		return gjson.ParseBytes(encoded), nil
	}
	return gjson.GetBytes(encoded, gjsonPath(segments)), nil
}

// Lookup returns the value at a writable path, and whether it exists. The value is part of the object.
func Lookup(object map[string]any, path string) (any, bool, error) {
	segments, err := parseWritable(path)
	if err != nil {
		return nil, false, err
	}
	var value any = object
	for _, s := range segments {
		var found bool
		if value, found = child(value, s); !found {
			return nil, false, nil
		}
	}
	return value, true, nil
}

// Set writes a value, which becomes part of the object. It creates missing objects and lists of the path. An index may be the length of a
// list, or -1, to append the value.
func Set(object map[string]any, path string, value any) error {
	segments, err := parseWritable(path)
	if err != nil {
		return err
	}
	if _, err := set(object, segments, value); err != nil {
		return fmt.Errorf("path %q: %w", path, err)
	}
	return nil
}

// Delete removes the value at a path, if it exists. The index -1 is the last element of a list.
func Delete(object map[string]any, path string) error {
	segments, err := parseWritable(path)
	if err != nil {
		return err
	}
	remove(object, segments)
	return nil
}

// FirstKeys returns the first keys of a path, at most n.
func FirstKeys(path string, n int) ([]string, error) {
	segments, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	var keys []string
	for _, s := range segments[:min(n, len(segments))] {
		keys = append(keys, s.key)
	}
	return keys, nil
}

// parseWritable parses a path that names exactly one field.
func parseWritable(path string) ([]segment, error) {
	segments, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	for _, s := range segments {
		if s.special || s.piped {
			return nil, fmt.Errorf("path %q: %q may be read only; a path that is written has keys and indexes", path, s.text)
		}
	}
	return segments, nil
}

func child(container any, s segment) (any, bool) {
	switch c := container.(type) {
	case map[string]any:
		value, found := c[s.key]
		return value, found
	case []any:
		if s.index >= 0 && s.index < len(c) {
			return c[s.index], true
		}
	}
	return nil, false
}

// set returns the container with the value. It is a different container if a list has grown.
func set(container any, segments []segment, value any) (any, error) {
	if len(segments) == 0 {
		return value, nil
	}
	s := segments[0]
	switch c := container.(type) {
	case nil:
		if s.index >= 0 || s.end {
			return set([]any{}, segments, value)
		}
		return set(map[string]any{}, segments, value)
	case map[string]any:
		element, err := set(c[s.key], segments[1:], value)
		if err != nil {
			return nil, err
		}
		c[s.key] = element
		return c, nil
	case []any:
		return setElement(c, s, segments[1:], value)
	}
	return nil, fmt.Errorf("%q would be a field of a %T", s.text, container)
}

func setElement(list []any, s segment, rest []segment, value any) (any, error) {
	index := s.index
	if s.end {
		index = len(list)
	}
	switch {
	case index < 0:
		return nil, fmt.Errorf("%q is no index of a list", s.text)
	case index > len(list):
		return nil, fmt.Errorf("index %d is behind the end of a list of %d elements", index, len(list))
	case index == len(list):
		list = append(list, nil)
	}
	element, err := set(list[index], rest, value)
	if err != nil {
		return nil, err
	}
	list[index] = element
	return list, nil
}

// remove returns the container without the value.
func remove(container any, segments []segment) any {
	s := segments[0]
	if list, ok := container.([]any); ok && s.end {
		s.index = len(list) - 1
	}
	element, found := child(container, s)
	if !found {
		return container
	}
	last := len(segments) == 1
	if !last {
		element = remove(element, segments[1:])
	}
	switch c := container.(type) {
	case map[string]any:
		if last {
			delete(c, s.key)
		} else {
			c[s.key] = element
		}
	case []any:
		if last {
			return append(c[:s.index:s.index], c[s.index+1:]...)
		}
		c[s.index] = element
	}
	return container
}

// encode writes JSON without escapes for HTML.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
