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
func (o *Object) sharePayload(payloads *clusterstorage.Interner, minSize int) {
	whole := o.stored
	if whole == nil || whole.payload != "" {
		return
	}
	from, to := whole.findLargestField()
	if to-from < minSize {
		return
	}
	split, canonical, err := scanObject(whole.json[:from] + placeholder + whole.json[to:])
	if err != nil || !canonical {
		return // impossible: the object was scanned before
	}
	split.payload, split.payloadOffset = payloads.InternCopy(whole.json[from:to]), uint32(from) // parse bounds the size
	o.stored = split
}

// findLargestField returns the position of the largest root member, other than apiVersion, kind and metadata.
func (s *storedObject) findLargestField() (from, to int) {
	root := scanner{text: s.json}
	_ = root.scanMembers(0, func(key string) error { // the object was scanned before
		start := root.pos
		err := root.skipValue(0)
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

// split returns three strings whose concatenation is the JSON.
func (s *storedObject) split() (head, payload, tail string) {
	if s.payload == "" {
		return s.json, "", ""
	}
	return s.json[:s.payloadOffset], s.payload, s.json[int(s.payloadOffset)+len(placeholder):]
}

// text returns the JSON.
func (s *storedObject) text() string {
	if s.payload == "" {
		return s.json
	}
	var whole strings.Builder
	whole.Grow(len(s.json) + len(s.payload))
	head, payload, tail := s.split()
	whole.WriteString(head)
	whole.WriteString(payload)
	whole.WriteString(tail)
	return whole.String()
}

// append appends the JSON between two offsets of json to a buffer, with the payload in place of the placeholder.
func (s *storedObject) append(buffer []byte, from, to int) []byte {
	cut := int(s.payloadOffset)
	if s.payload == "" || cut < from || cut >= to {
		return append(buffer, s.json[from:to]...)
	}
	buffer = append(buffer, s.json[from:cut]...)
	buffer = append(buffer, s.payload...)
	return append(buffer, s.json[cut+len(placeholder):to]...)
}
