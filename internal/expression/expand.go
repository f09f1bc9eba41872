package expression

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Part is a piece of a text: literal, or an expression without "${" and "}".
type Part struct {
	Text         string
	IsExpression bool
}

// Split splits a text at "${" and the matching "}": one within a string or braces of the expression does not end it.
func Split(text string) ([]Part, error) {
	var parts []Part
	for {
		before, rest, found := strings.Cut(text, "${")
		if before != "" {
			parts = append(parts, Part{Text: before})
		}
		if !found {
			return parts, nil
		}
		end := expressionEnd(rest)
		if end < 0 {
			return nil, fmt.Errorf("%q has no end", "${"+rest)
		}
		parts = append(parts, Part{rest[:end], true})
		text = rest[end+1:]
	}
}

// expressionEnd returns the index of the brace that ends an expression, or -1.
func expressionEnd(text string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '{':
			depth++
		case c == '}' && depth == 0:
			return i
		case c == '}':
			depth--
		}
	}
	return -1
}

// Expand returns a copy of a value in whose texts the results of CEL expressions replace the expressions between "${" and "}". A text
// that consists of one expression becomes its result; in other texts, results are inserted as text.
func Expand(value any, self, other map[string]any) (any, error) {
	switch v := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) { // always returns the same of several errors
			expanded, err := Expand(v[key], self, other)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			result[key] = expanded
		}
		return result, nil
	case []any:
		result := make([]any, len(v))
		for i, element := range v {
			expanded, err := Expand(element, self, other)
			if err != nil {
				return nil, fmt.Errorf("[%d]: %w", i, err)
			}
			result[i] = expanded
		}
		return result, nil
	case string:
		return expandText(v, self, other)
	case float64: // decoded by encoding/json; objects have integers
		if v == float64(int64(v)) {
			return int64(v), nil
		}
	}
	return value, nil
}

// ExpandText is Expand for values that are always texts.
func ExpandText(text string, self, other map[string]any) (string, error) {
	value, err := expandText(text, self, other)
	return asText(value), err
}

func expandText(text string, self, other map[string]any) (any, error) {
	parts, err := Split(text)
	if err != nil {
		return nil, err
	}
	if len(parts) == 1 && parts[0].IsExpression {
		return EvaluateCEL(parts[0].Text, nil, self, other)
	}
	var b strings.Builder
	for _, p := range parts {
		if !p.IsExpression {
			b.WriteString(p.Text)
			continue
		}
		result, err := EvaluateCEL(p.Text, nil, self, other)
		if err != nil {
			return nil, err
		}
		b.WriteString(asText(result))
	}
	return b.String(), nil
}

func asText(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // results of CEL are JSON
	}
	return string(text)
}

// ValidateKey returns the errors in a key of an object whose texts have expressions. Keys have no expressions, so it refuses a key that
// contains one, because Expand would not replace it.
func ValidateKey(key string, path *field.Path) field.ErrorList {
	if !strings.Contains(key, "${") {
		return nil
	}
	return field.ErrorList{field.Invalid(path, key, "keys cannot have expressions")}
}

// ValidateExpand returns the errors in the expressions of a value for Expand.
func ValidateExpand(value any, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			errs = append(errs, ValidateKey(key, path.Key(key))...)
			errs = append(errs, ValidateExpand(v[key], path.Child(key))...)
		}
	case []any:
		for i, element := range v {
			errs = append(errs, ValidateExpand(element, path.Index(i))...)
		}
	case string:
		parts, err := Split(v)
		if err != nil {
			return field.ErrorList{field.Invalid(path, v, err.Error())}
		}
		for _, p := range parts {
			if p.IsExpression {
				errs = append(errs, ValidateCEL(p.Text, path)...)
			}
		}
	}
	return errs
}

// ValidateCEL returns the errors in an expression.
func ValidateCEL(text string, path *field.Path) field.ErrorList {
	if err := CompileCEL(text); err != nil {
		return field.ErrorList{field.Invalid(path, text, err.Error())}
	}
	return nil
}
