package expression

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"text/template"
)

const (
	// maxElements bounds lists that are built from a number, and lists whose elements are compared with each other.
	maxElements = maxIterations
	// maxUnique bounds lists whose elements are compared with each other.
	maxUnique = 1000
	// maxFormat bounds formats of printf, and maxWidth the widths in them.
	maxFormat, maxWidthDigits = 4096, 3
)

// boundedFunctions are functions whose result can be much larger than their arguments: they check the size before they allocate.
func boundedFunctions(upstream template.FuncMap) template.FuncMap {
	until := upstream["untilStep"].(func(int, int, int) []int)
	join := upstream["join"].(func(string, any) string)
	uniq := upstream["mustUniq"].(func(any) ([]any, error))
	uniqBounded := func(list any) ([]any, error) {
		if n := length(list); n > maxUnique {
			return nil, fmt.Errorf("the list has %d elements, more than %d", n, maxUnique)
		}
		return uniq(list)
	}
	return template.FuncMap{
		"repeat": func(count int, s string) (string, error) {
			if count < 0 {
				return "", fmt.Errorf("the count %d is negative", count)
			}
			if err := checkProduct(count, len(s)); err != nil {
				return "", err
			}
			return strings.Repeat(s, count), nil
		},
		"indent":  indent,
		"nindent": func(spaces int, s string) (string, error) { s, err := indent(spaces, s); return "\n" + s, err },
		"replace": func(old, new, s string) (string, error) {
			if err := checkProduct(strings.Count(s, old), len(new)); err != nil {
				return "", err
			}
			return strings.ReplaceAll(s, old, new), nil
		},
		"join": func(separator string, list any) (string, error) {
			if err := checkProduct(length(list), len(separator)); err != nil {
				return "", err
			}
			return join(separator, list), nil
		},
		"wrapWith": func(width int, separator, s string) (string, error) {
			if err := checkProduct(len(s), len(separator)); err != nil {
				return "", err
			}
			return upstream["wrapWith"].(func(int, string, string) string)(width, separator, s), nil
		},
		"until": func(count int) ([]int, error) { return steps(until, 0, count, sign(count)) },
		"untilStep": func(start, stop, step int) ([]int, error) {
			return steps(until, start, stop, step)
		},
		"uniq": uniqBounded, "mustUniq": uniqBounded,
		"regexReplaceAll": replacePattern, "mustRegexReplaceAll": replacePattern,
		"regexReplaceAllLiteral": replacePatternLiteral, "mustRegexReplaceAllLiteral": replacePatternLiteral,
		"toPrettyJson": prettyJSON, "mustToPrettyJson": prettyJSON,
		"printf":  format,
		"print":   func(values ...any) string { return fmt.Sprint(values...) },
		"println": func(values ...any) string { return fmt.Sprintln(values...) },
	}
}

func checkProduct(count, size int) error {
	if count > 0 && size > maxText/count {
		return fmt.Errorf("the result would be longer than %d bytes", maxText)
	}
	return nil
}

func length(list any) int {
	switch v := reflect.ValueOf(list); v.Kind() {
	case reflect.Slice, reflect.Array:
		return v.Len()
	}
	return 0
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

func steps(until func(int, int, int) []int, start, stop, step int) ([]int, error) {
	if step != 0 && (float64(stop)-float64(start))/float64(step) > maxElements {
		return nil, fmt.Errorf("the list would have more than %d elements", maxElements)
	}
	return until(start, stop, step), nil
}

func indent(spaces int, s string) (string, error) {
	if spaces < 0 {
		return "", fmt.Errorf("the number of spaces %d is negative", spaces)
	}
	if err := checkProduct(strings.Count(s, "\n")+1, spaces); err != nil {
		return "", err
	}
	pad := strings.Repeat(" ", spaces)
	return pad + strings.ReplaceAll(s, "\n", "\n"+pad), nil
}

func replacePattern(pattern, s, replacement string) (string, error) {
	return Replace(pattern, replacement, s)
}

func replacePatternLiteral(pattern, s, replacement string) (string, error) {
	return Replace(pattern, strings.ReplaceAll(replacement, "$", "$$"), s)
}

// prettyJSON indents JSON; the space for that grows with the depth.
func prettyJSON(value any) (string, error) {
	encoded, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	depth, deepest := 0, 1
	for _, c := range encoded {
		switch c {
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	if err := checkProduct(strings.Count(string(encoded), ",")+2*deepest, 2*deepest); err != nil {
		return "", err
	}
	pretty, err := json.MarshalIndent(value, "", "  ")
	return string(pretty), err
}

var wideVerb = regexp.MustCompile(fmt.Sprintf(`\*|[0-9]{%d,}`, maxWidthDigits+1))

func format(format string, values ...any) (string, error) {
	if len(format) > maxFormat {
		return "", fmt.Errorf("the format is longer than %d bytes", maxFormat)
	}
	for _, verb := range strings.Split(format, "%")[1:] {
		if flags := strings.TrimLeft(verb, "+-# 0"); wideVerb.MatchString(flags[:len(flags)-len(strings.TrimLeft(flags, "0123456789.*[]"))]) {
			return "", fmt.Errorf("the format %q has a width of more than %d digits", format, maxWidthDigits)
		}
	}
	return fmt.Sprintf(format, values...), nil
}
