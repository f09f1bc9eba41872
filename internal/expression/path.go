package expression

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// segment is one part of a path.
type segment struct {
	// text is the segment as written, key the segment without escapes.
	text, key string
	// index is the position in a list, or -1 if the key is not a number.
	index int
	// end is "-1": the last element for a deletion, the position after it for a write.
	end bool
	// special segments read more than one field: wildcards, #, queries and modifiers.
	special bool
	// piped means that a | precedes it.
	piped bool
}

// modifiers are the allowed modifiers of gjson: they read values that paths cannot. Arguments are not supported.
var modifiers = []string{"@flatten", "@keys", "@reverse", "@this", "@values"}

// parsePath splits a path like gjson and sjson: segments between dots, \ escapes the next character, numbers are indexes of lists unless
// a colon precedes them. Only gjson evaluates special segments.
func parsePath(path string) ([]segment, error) {
	if path == "" {
		return nil, errors.New("the path is empty")
	}
	var segments []segment
	piped := false
	for rest := path; ; {
		s, n, err := parseSegment(rest)
		if err != nil {
			return nil, fmt.Errorf("path %q: %w", path, err)
		}
		s.piped = piped
		segments = append(segments, s)
		if n == len(rest) {
			return segments, nil
		}
		piped = rest[n] == '|'
		rest = rest[n+1:]
	}
}

// parseSegment returns the first segment and its length in bytes.
func parseSegment(rest string) (segment, int, error) {
	if strings.HasPrefix(rest, "#(") {
		return parseQuery(rest)
	}
	var key strings.Builder
	s := segment{index: -1}
	plain := true // nothing is escaped
	n := 0
scan:
	for ; n < len(rest); n++ {
		switch c := rest[n]; c {
		case '.', '|':
			break scan
		case '\\':
			if n++; n == len(rest) {
				return segment{}, 0, errors.New(`nothing follows the last \`)
			}
			plain = false
			key.WriteByte(rest[n])
			continue
		case '*', '?':
			s.special = true
		}
		key.WriteByte(rest[n])
	}
	s.text, s.key = rest[:n], key.String()
	if err := s.checkFirst(); err != nil {
		return segment{}, 0, err
	}
	if plain && !s.special {
		s.classify()
	}
	return s, n, nil
}

// checkFirst refuses characters that gjson does not treat as part of a key.
func (s *segment) checkFirst() error {
	if s.text == "" {
		return errors.New("a segment is empty; paths have no leading or trailing dot, and a dot of a key is written \\.")
	}
	switch s.text[0] {
	case '@':
		if !slices.Contains(modifiers, s.text) {
			return fmt.Errorf("%q is not supported; use one of %s, or write \\@ for a key that begins so",
				s.text, strings.Join(modifiers, ", "))
		}
		s.special = true
	case '!', '{', '[':
		return fmt.Errorf("%q is not supported; write \\%c for a key that begins so", s.text, s.text[0])
	case '#':
		if s.text != "#" {
			return fmt.Errorf("%q is not supported; write # for all elements, #(field==\"value\") for one, or \\# for a key that begins so", s.text)
		}
		s.special = true
	}
	return nil
}

// classify detects numbers.
func (s *segment) classify() {
	forced := strings.TrimPrefix(s.key, ":")
	index, end := -1, forced == "-1"
	if n, err := strconv.Atoi(forced); err == nil && forced[0] >= '0' && forced[0] <= '9' {
		index = n
	}
	switch {
	case index < 0 && !end: // an ordinary key, which may have a colon
	case forced != s.key:
		s.text, s.key = forced, forced
	default:
		s.index, s.end = index, end
	}
}

// parseQuery parses #(...) and #(...)#.
func parseQuery(rest string) (segment, int, error) {
	n, depth, quoted := 1, 0, false
scan:
	for ; n < len(rest); n++ {
		c := rest[n]
		switch {
		case c == '\\':
			n++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 {
				n++
				break scan
			}
		case strings.IndexByte("@{[|", c) >= 0:
			return segment{}, 0, fmt.Errorf("%q is not supported in the query %q", c, rest)
		}
	}
	if depth != 0 || quoted || n > len(rest) {
		return segment{}, 0, fmt.Errorf("the query %q does not end", rest)
	}
	if n < len(rest) && rest[n] == '#' {
		n++
	}
	if n < len(rest) && rest[n] != '.' && rest[n] != '|' {
		return segment{}, 0, fmt.Errorf("a dot must follow the query %q", rest[:n])
	}
	return segment{text: rest[:n], key: rest[:n], index: -1, special: true}, n, nil
}

// gjsonPath returns segments in the syntax of gjson.
func gjsonPath(segments []segment) string {
	var b strings.Builder
	for i, s := range segments {
		if i > 0 {
			if s.piped {
				b.WriteByte('|')
			} else {
				b.WriteByte('.')
			}
		}
		b.WriteString(s.text)
	}
	return b.String()
}
