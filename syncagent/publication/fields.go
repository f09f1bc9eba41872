package publication

import (
	"regexp"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/util/validation/field"
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

func isPattern(pattern string) []string {
	if _, err := regexp.Compile(pattern); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// isTemplateText checks the syntax of a Go template. Functions are looked up where it is rendered.
func isTemplateText(text string) []string {
	tree := parse.New("template")
	tree.Mode = parse.SkipFuncCheck
	if _, err := tree.Parse(text, "", "", map[string]*parse.Tree{}); err != nil {
		return []string{err.Error()}
	}
	return nil
}

func anyText(string) []string { return nil }
