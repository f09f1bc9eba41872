package expression

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/utils/lru"
)

var patterns = lru.New(cacheSize)

// Replace replaces all matches of a pattern, in which $1 is the first group. If the pattern is empty, the replacement
// replaces the whole text.
func Replace(pattern, replacement, s string) (string, error) {
	if pattern == "" {
		return replacement, nil
	}
	compiled, err := compilePattern(pattern)
	if err != nil {
		return "", err
	}
	// Every match adds the replacement, in which each $ adds at most the match.
	matches := len(compiled.FindAllStringIndex(s, -1))
	if err := checkProduct(matches, len(replacement)); err != nil {
		return "", err
	}
	if err := checkProduct(len(s), strings.Count(replacement, "$")); err != nil {
		return "", err
	}
	return compiled.ReplaceAllString(s, replacement), nil
}

// CompilePattern returns the errors in a pattern.
func CompilePattern(pattern string) error {
	_, err := compilePattern(pattern)
	return err
}

func compilePattern(pattern string) (*regexp.Regexp, error) {
	if compiled, found := patterns.Get(pattern); found {
		return compiled.(*regexp.Regexp), nil
	}
	compiled, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", pattern, err)
	}
	patterns.Add(pattern, compiled)
	return compiled, nil
}
