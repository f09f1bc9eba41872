package crdstorage

import (
	"errors"
	"fmt"
)

// errJSON is the error of invalid JSON.
var errJSON = errors.New("not valid JSON")

// maxDepth bounds the nesting, as encoding/json does.
const maxDepth = 10000

// scanner scans JSON (RFC 8259) without decoding it. Every method starts at pos and sets pos after what it consumed.
type scanner struct {
	text string
	pos  int
}

func (s *scanner) fail() error { return fmt.Errorf("%w at offset %d", errJSON, s.pos) }

// space skips white space.
func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

// end fails unless only white space is left.
func (s *scanner) end() error {
	if s.space(); s.pos != len(s.text) {
		return s.fail()
	}
	return nil
}

// members calls visit for every member of the object at pos, positioned at its value. Visit must consume exactly the
// value. The key is not unescaped, and has its quotes.
func (s *scanner) members(depth int, visit func(key string) error) error {
	if depth > maxDepth || s.peek() != '{' {
		return s.fail()
	}
	s.pos++
	s.space()
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.space()
		start := s.pos
		if err := s.str(); err != nil {
			return err
		}
		key := s.text[start:s.pos]
		s.space()
		if s.peek() != ':' {
			return s.fail()
		}
		s.pos++
		s.space()
		if err := visit(key); err != nil {
			return err
		}
		more, err := s.more('}')
		if !more {
			return err
		}
	}
}

// more consumes what follows a member or element: a comma, or the end of the object or array.
func (s *scanner) more(end byte) (bool, error) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		return true, nil
	case end:
		s.pos++
		return false, nil
	}
	return false, s.fail()
}

// value skips one value of any kind.
func (s *scanner) value(depth int) error {
	switch c := s.peek(); {
	case c == '{':
		return s.members(depth+1, func(string) error { return s.value(depth + 1) })
	case c == '[':
		return s.elements(depth + 1)
	case c == '"':
		return s.str()
	case c == '-' || (c >= '0' && c <= '9'):
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	}
	return s.fail()
}

func (s *scanner) elements(depth int) error {
	if depth > maxDepth {
		return s.fail()
	}
	s.pos++
	s.space()
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		s.space()
		if err := s.value(depth); err != nil {
			return err
		}
		more, err := s.more(']')
		if !more {
			return err
		}
	}
}

func (s *scanner) literal(word string) error {
	if len(s.text)-s.pos < len(word) || s.text[s.pos:s.pos+len(word)] != word {
		return s.fail()
	}
	s.pos += len(word)
	return nil
}

// str skips a string.
func (s *scanner) str() error {
	if s.peek() != '"' {
		return s.fail()
	}
	for i := s.pos + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c < ' ':
			s.pos = i
			return s.fail()
		case c == '\\':
			width := escape(s.text[i+1:])
			if width == 0 {
				s.pos = i
				return s.fail()
			}
			i += width
		}
	}
	return s.fail()
}

// escape returns the length of the escape after a backslash, 0 if it is invalid.
func escape(text string) int {
	if text == "" {
		return 0
	}
	switch text[0] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 1
	case 'u':
		if len(text) < 5 {
			return 0
		}
		for _, c := range []byte(text[1:5]) {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return 0
			}
		}
		return 5
	}
	return 0
}

// number skips a number.
func (s *scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return s.fail()
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return s.fail()
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.fail()
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.pos > start
}
