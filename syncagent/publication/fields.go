package publication

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/atoll-dev/atoll/internal/expression"
)

func required(value string, check func(string) []string, fldPath *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(fldPath, "")}
	}
	return optional(value, check, fldPath)
}

func optional(value string, check func(string) []string, fldPath *field.Path) field.ErrorList {
	if value == "" {
		return nil
	}
	var errs field.ErrorList
	for _, message := range check(value) {
		errs = append(errs, field.Invalid(fldPath, value, message))
	}
	return errs
}

// isReadPath validates a path with a read at it.
func isReadPath(path string) []string {
	_, err := expression.Get(map[string]any{}, path)
	return message(err)
}

// isWritePath validates a path with a deletion at it, which has no effect in an empty object.
func isWritePath(path string) []string {
	return message(expression.Delete(map[string]any{}, path))
}

func compilesAsPattern(pattern string) []string { return message(expression.CompilePattern(pattern)) }

func compilesAsTemplate(text string) []string { return message(expression.CompileTemplate(text)) }

func compilesAsCEL(text string) []string { return message(expression.CompileCEL(text)) }

func message(err error) []string {
	if err == nil {
		return nil
	}
	return []string{err.Error()}
}
