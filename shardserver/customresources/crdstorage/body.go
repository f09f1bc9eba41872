package crdstorage

import (
	"strings"

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// Versions of an object mostly differ in metadata and status, and objects of many logical clusters are made from one
// template. So what the watch cache keeps has the largest member of an object, mostly its spec, as a text of its own,
// which all that are equal share.

// placeholder stands for the body in the JSON of an object that has it apart. It is a value, so that the JSON stays one.
const placeholder = "0"

// share takes the body out of an object that nobody else has yet, if it has at least so many bytes.
func (o *Object) share(texts *clusterstorage.Shared, least int) {
	whole := o.stored
	if whole == nil || whole.body != "" {
		return
	}
	from, to := whole.largest()
	if to-from < least {
		return
	}
	apart, plain, err := scan(whole.json[:from] + placeholder + whole.json[to:])
	if err != nil || !plain {
		return // cannot be: it was scanned before
	}
	apart.body, apart.cut = texts.Copy(whole.json[from:to]), uint32(from) //nolint:gosec // parse bounds the size
	o.stored = apart
}

// largest returns where the longest value at the root of an object is that tells nothing of its kind or metadata.
func (s *stored) largest() (from, to int) {
	root := scanner{text: s.json}
	_ = root.members(0, func(key string) error { // it was scanned before
		start := root.pos
		err := root.value(0)
		switch key {
		case `"apiVersion"`, `"kind"`, `"metadata"`:
		default:
			if root.pos-start > to-from {
				from, to = start, root.pos
			}
		}
		return err
	})
	return from, to
}

// parts returns texts that make the whole JSON one behind the other.
func (s *stored) parts() (head, body, tail string) {
	if s.body == "" {
		return s.json, "", ""
	}
	return s.json[:s.cut], s.body, s.json[int(s.cut)+len(placeholder):]
}

// text returns the whole JSON.
func (s *stored) text() string {
	if s.body == "" {
		return s.json
	}
	var whole strings.Builder
	whole.Grow(len(s.json) + len(s.body))
	head, body, tail := s.parts()
	whole.WriteString(head)
	whole.WriteString(body)
	whole.WriteString(tail)
	return whole.String()
}

// append writes what json has between two offsets behind what buffer holds, with the body in its place.
func (s *stored) append(buffer []byte, from, to int) []byte {
	cut := int(s.cut)
	if s.body == "" || cut < from || cut >= to {
		return append(buffer, s.json[from:to]...)
	}
	buffer = append(buffer, s.json[from:cut]...)
	buffer = append(buffer, s.body...)
	return append(buffer, s.json[cut+len(placeholder):to]...)
}
