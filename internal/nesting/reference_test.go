package nesting

import "errors"

// reference is the scan as a recursive function, as simple as generated code. It is for small inputs.
type reference struct{ scan }

var errMalformed = errors.New("malformed")

func newReference(data []byte, limit int) *reference {
	return &reference{scan{data: data, limit: limit}}
}

func (r *reference) message(described *message, start, end, level int) error {
	if level > r.limit {
		return &TooDeepError{r.limit}
	}
	for r.pos = start; r.pos < end; {
		before := r.pos
		tag, ok := r.varint(end)
		if !ok {
			return errMalformed
		}
		known := described.fields[int32(tag>>3)]
		if known != nil && level+known.levels > r.limit {
			return &TooDeepError{r.limit}
		}
		if known == nil || tag&7 != wireLength {
			r.pos = before
			if !r.skip(end) {
				return errMalformed
			}
			continue
		}
		next, ok := r.length(end)
		if !ok {
			return errMalformed
		}
		if err := r.value(known, next, level+known.levels); err != nil {
			return err
		}
		r.pos = next
	}
	return nil
}

func (r *reference) value(known *field, end, level int) error {
	switch known.kind {
	case mapField:
		return r.entry(known, end, level)
	case messageField:
		return r.message(known.message, r.pos, end, level)
	case jsonField:
		if CheckJSON(r.data[r.pos:end], r.limit-level) != nil {
			return &TooDeepError{r.limit}
		}
	}
	return nil
}

func (r *reference) entry(known *field, end, level int) error {
	for r.pos < end {
		before := r.pos
		tag, ok := r.varint(end)
		if !ok {
			return errMapEntry
		}
		number := int32(tag >> 3)
		if number != 1 && number != 2 {
			r.pos = before
			if !r.skip(end) {
				return errMapEntry
			}
			continue
		}
		next, ok := r.length(end)
		if !ok {
			return errMapEntry
		}
		if number == 2 && known.message != nil {
			if err := r.message(known.message, r.pos, next, level+known.valueLevels); err != nil {
				return err
			}
		}
		r.pos = next
	}
	return nil
}
