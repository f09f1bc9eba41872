package nesting

import (
	"errors"
)

// errMapEntry is the error for an entry of a map whose key or value does not end with the entry.
var errMapEntry = errors.New("an entry of a map is malformed: its key or value does not end within the entry")

// scan reads a message in the same way as its generated decoder, and returns an error before a decoder would recurse deeper than limit.
// It needs memory for the levels only, and reads each byte a constant number of times.
//
// It stops where a decoder fails: it accepts every message within the limit that a decoder accepts, and messages that a decoder refuses
// before it recurses deeper than the limit. So it returns no error for malformed messages, with one exception: an entry of a map must
// contain its key and its value. Generated code does not check that, and without it its work is not bounded by its input.
type scan struct {
	data  []byte
	pos   int
	limit int
	stack []frame
	// visited counts the bytes that were read, for tests.
	visited int
}

// frame is a message, or an entry of a map, that is being read.
type frame struct {
	end     int
	message *message
	// entry is set for an entry of a map, and is the field that contains it.
	entry *field
	level int
}

// checkMessage scans a message of a type, whose object is at a level of the JSON that contains it.
func checkMessage(t *message, data []byte, level, limit int) error {
	s := scan{data: data, limit: limit}
	return s.run(t, level)
}

func (s *scan) run(t *message, level int) error {
	if err := s.push(frame{end: len(s.data), message: t, level: level}); err != nil {
		return err
	}
	for len(s.stack) > 0 {
		top := s.stack[len(s.stack)-1]
		if s.pos >= top.end {
			s.stack = s.stack[:len(s.stack)-1]
			continue
		}
		read := s.readField
		if top.entry != nil {
			read = s.readEntry
		}
		ok, err := read(top)
		if err != nil {
			return err
		}
		if !ok {
			return nil // the decoder fails here
		}
	}
	return nil
}

// push enters a message or an entry. Some types add no level of JSON, but contain one that does.
func (s *scan) push(f frame) error {
	if f.level > s.limit || len(s.stack) > 3*s.limit {
		return &TooDeepError{s.limit}
	}
	s.stack = append(s.stack, f)
	return nil
}

// Wire types.
const (
	wireVarint     = 0
	wireFixed64    = 1
	wireLength     = 2
	wireStartGroup = 3
	wireEndGroup   = 4
	wireFixed32    = 5
)

// readField reads a field of a message, and enters it if it has levels.
func (s *scan) readField(top frame) (bool, error) {
	start := s.pos
	tag, ok := s.varint(top.end)
	if !ok {
		return false, nil
	}
	known := top.message.fieldOf(tag)
	if known != nil && top.level+known.levels > s.limit {
		return false, &TooDeepError{s.limit}
	}
	if known == nil || tag&7 != wireLength {
		s.pos = start
		return s.skip(top.end), nil
	}
	end, ok := s.length(top.end)
	if !ok {
		return false, nil
	}
	level := top.level + known.levels
	switch {
	case known.kind == mapField:
		return true, s.push(frame{end: end, entry: known, level: level})
	case known.kind == messageField && known.message != nil:
		return true, s.push(frame{end: end, message: known.message, level: level})
	case known.kind == jsonField:
		s.visited += end - s.pos
		if CheckJSON(s.data[s.pos:end], s.limit-level) != nil {
			return false, &TooDeepError{s.limit}
		}
	}
	s.pos = end
	return true, nil
}

// readEntry reads the key, the value or another field of an entry of a map. As generated code, it ignores the wire types of key
// and value.
func (s *scan) readEntry(top frame) (bool, error) {
	start := s.pos
	tag, ok := s.varint(top.end)
	if !ok {
		return false, errMapEntry
	}
	number := fieldNumberOf(tag)
	switch {
	case number == 2 && top.entry.isNumber:
		if _, ok = s.varint(top.end); !ok {
			return false, errMapEntry
		}
		return true, nil
	case number != 1 && number != 2:
		s.pos = start
		if !s.skip(top.end) {
			return false, errMapEntry
		}
		return true, nil
	}
	end, ok := s.length(top.end)
	if !ok {
		return false, errMapEntry
	}
	if level := top.level + top.entry.valueLevels; number == 2 && level > s.limit {
		return false, &TooDeepError{s.limit}
	} else if number == 2 && top.entry.message != nil {
		return true, s.push(frame{end: end, message: top.entry.message, level: level})
	}
	s.pos = end
	return true, nil
}

// skip skips a field with its tag. Generated code skips groups with their whole content, without recursion, so they do not count as
// levels: texts that resemble the start of many groups are common.
func (s *scan) skip(end int) bool {
	for groups := 0; ; {
		tag, ok := s.varint(end)
		if !ok {
			return false
		}
		switch tag & 7 {
		case wireVarint:
			_, ok = s.varint(end)
		case wireFixed64:
			ok = s.advance(8, end)
		case wireLength:
			var next int
			if next, ok = s.length(end); ok {
				s.pos = next
			}
		case wireStartGroup:
			groups++
		case wireEndGroup:
			groups--
			ok = groups >= 0
		case wireFixed32:
			ok = s.advance(4, end)
		default:
			ok = false
		}
		if !ok || groups == 0 {
			return ok
		}
	}
}

func (s *scan) advance(n, end int) bool {
	s.pos += n
	return s.pos <= end
}

// length reads a length and returns the position after that many bytes.
func (s *scan) length(end int) (int, bool) {
	n, ok := s.varint(end)
	if length := int(n); ok && length >= 0 && length <= end-s.pos {
		return s.pos + length, true
	}
	return 0, false
}

// varint reads a number. Like generated code, it ignores bits beyond 64, where other libraries fail.
func (s *scan) varint(end int) (uint64, bool) {
	var n uint64
	for shift := uint(0); shift < 64 && s.pos < end; shift += 7 {
		b := s.data[s.pos]
		s.pos++
		s.visited++
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n, true
		}
	}
	return 0, false
}

func fieldNumberOf(tag uint64) int32 { return int32(tag >> 3) } // generated code ignores the other bits, too

func (m *message) fieldOf(tag uint64) *field {
	if m == nil {
		return nil
	}
	return m.fields[fieldNumberOf(tag)]
}
