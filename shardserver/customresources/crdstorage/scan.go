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

func (s *scanner) newSyntaxError() error { return fmt.Errorf("%w at offset %d", errJSON, s.pos) }

// skipSpace skips white space.
func (s *scanner) skipSpace() {
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

// expectEnd fails unless only white space is left.
func (s *scanner) expectEnd() error {
	if s.skipSpace(); s.pos != len(s.text) {
		return s.newSyntaxError()
	}
	return nil
}

// scanMembers calls visit for every member of the object at pos, positioned at its value. Visit must consume exactly the
// value. The key is not unescaped, and has its quotes.
func (s *scanner) scanMembers(depth int, visit func(key string) error) error {
	if depth > maxDepth || s.peek() != '{' {
		return s.newSyntaxError()
	}
	s.pos++
	s.skipSpace()
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.skipSpace()
		start := s.pos
		if err := s.skipString(); err != nil {
			return err
		}
		key := s.text[start:s.pos]
		s.skipSpace()
		if s.peek() != ':' {
			return s.newSyntaxError()
		}
		s.pos++
		s.skipSpace()
		if err := visit(key); err != nil {
			return err
		}
		more, err := s.scanSeparator('}')
		if !more {
			return err
		}
	}
}

// scanSeparator consumes what follows a member or element: a comma, or the end of the object or array.
func (s *scanner) scanSeparator(closing byte) (bool, error) {
	s.skipSpace()
	switch s.peek() {
	case ',':
		s.pos++
		return true, nil
	case closing:
		s.pos++
		return false, nil
	}
	return false, s.newSyntaxError()
}

// skipValue skips one value of any kind.
func (s *scanner) skipValue(depth int) error {
	switch c := s.peek(); {
	case c == '{':
		return s.scanMembers(depth+1, func(string) error { return s.skipValue(depth + 1) })
	case c == '[':
		return s.skipElements(depth + 1)
	case c == '"':
		return s.skipString()
	case c == '-' || (c >= '0' && c <= '9'):
		return s.skipNumber()
	case c == 't':
		return s.skipLiteral("true")
	case c == 'f':
		return s.skipLiteral("false")
	case c == 'n':
		return s.skipLiteral("null")
	}
	return s.newSyntaxError()
}

func (s *scanner) skipElements(depth int) error {
	if depth > maxDepth {
		return s.newSyntaxError()
	}
	s.pos++
	s.skipSpace()
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		s.skipSpace()
		if err := s.skipValue(depth); err != nil {
			return err
		}
		more, err := s.scanSeparator(']')
		if !more {
			return err
		}
	}
}

func (s *scanner) skipLiteral(text string) error {
	if len(s.text)-s.pos < len(text) || s.text[s.pos:s.pos+len(text)] != text {
		return s.newSyntaxError()
	}
	s.pos += len(text)
	return nil
}

// skipString skips a string.
func (s *scanner) skipString() error {
	if s.peek() != '"' {
		return s.newSyntaxError()
	}
	for i := s.pos + 1; i < len(s.text); i++ {
		switch c := s.text[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c < ' ':
			s.pos = i
			return s.newSyntaxError()
		case c == '\\':
			width := escapeLength(s.text[i+1:])
			if width == 0 {
				s.pos = i
				return s.newSyntaxError()
			}
			i += width
		}
	}
	return s.newSyntaxError()
}

// escapeLength returns the length of the escape after a backslash, 0 if it is invalid.
func escapeLength(text string) int {
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

// skipNumber skips a number.
func (s *scanner) skipNumber() error {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.skipDigits() {
		return s.newSyntaxError()
	}
	if s.peek() == '.' {
		s.pos++
		if !s.skipDigits() {
			return s.newSyntaxError()
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.skipDigits() {
			return s.newSyntaxError()
		}
	}
	return nil
}

func (s *scanner) skipDigits() bool {
	start := s.pos
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.pos++
	}
	return s.pos > start
}
