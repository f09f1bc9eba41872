package crdstorage

import (
	"strings"

	clusterstorage "github.com/atoll-dev/atoll/shardserver/storage"
)

// Consecutive versions of an object mostly differ in metadata and status, and many objects of different logical clusters
// are equal but for their metadata. So objects of the watch cache have their largest member, usually the spec, as a
// separate string, the payload, which equal payloads share.

// placeholder is in the place of the payload in the JSON of an object. It is a valid value, so the JSON stays valid.
const placeholder = "0"

// sharePayload separates the payload of an object, if it has at least minSize bytes. The object must not be in use.
func (o *Object) sharePayload(payloads *clusterstorage.Shared, minSize int) {
	whole := o.stored
	if whole == nil || whole.payload != "" {
		return
	}
	from, to := whole.largest()
	if to-from < minSize {
		return
	}
	split, plain, err := scan(whole.json[:from] + placeholder + whole.json[to:])
	if err != nil || !plain {
		return // impossible: the object was scanned before
	}
	split.payload, split.payloadOffset = payloads.Copy(whole.json[from:to]), uint32(from) //nolint:gosec // parse bounds the size
	o.stored = split
}

// largest returns the position of the largest root member, other than apiVersion, kind and metadata.
func (s *stored) largest() (from, to int) {
	root := scanner{text: s.json}
	_ = root.members(0, func(key string) error { // the object was scanned before
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

// parts returns three strings whose concatenation is the JSON.
func (s *stored) parts() (head, payload, tail string) {
	if s.payload == "" {
		return s.json, "", ""
	}
	return s.json[:s.payloadOffset], s.payload, s.json[int(s.payloadOffset)+len(placeholder):]
}

// text returns the JSON.
func (s *stored) text() string {
	if s.payload == "" {
		return s.json
	}
	var whole strings.Builder
	whole.Grow(len(s.json) + len(s.payload))
	head, payload, tail := s.parts()
	whole.WriteString(head)
	whole.WriteString(payload)
	whole.WriteString(tail)
	return whole.String()
}

// append appends the JSON between two offsets of json to a buffer, with the payload in place of the placeholder.
func (s *stored) append(buffer []byte, from, to int) []byte {
	cut := int(s.payloadOffset)
	if s.payload == "" || cut < from || cut >= to {
		return append(buffer, s.json[from:to]...)
	}
	buffer = append(buffer, s.json[from:cut]...)
	buffer = append(buffer, s.payload...)
	return append(buffer, s.json[cut+len(placeholder):to]...)
}
