// Package threatmodel_test checks the pages of the threat model.
package threatmodel_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var namedTest = regexp.MustCompile("`([a-z][^`#]*_test\\.go)?#((?:Test|Fuzz)[A-Za-z0-9]+)`")

// TestThreatModelNamesTests checks that the tests exist that prove the bounds of the threat model.
func TestThreatModelNamesTests(t *testing.T) {
	root := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(root, "docs", "threat-model*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	found, file := 0, ""
	for _, match := range namedTest.FindAllStringSubmatch(text.String(), -1) {
		found++
		if match[1] != "" {
			file = match[1] // a test without a file is in that of the one before
		}
		source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Errorf("%s: %v", match[2], err)
			continue
		}
		if !strings.Contains(string(source), "func "+match[2]+"(") {
			t.Errorf("%s has no %s", file, match[2])
		}
	}
	if found == 0 {
		t.Error("the threat model names no test")
	}
}
