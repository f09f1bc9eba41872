package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// writeChart packs a chart with the version of the release. The image of the release, with its digest, becomes the default.
func (r *release) writeChart(directory string, digest v1.Hash) (string, error) {
	name := filepath.Base(directory)
	changed := map[string]func(string) (string, error){
		"Chart.yaml": func(text string) (string, error) {
			return replaceAll(text, map[string]string{`(?m)^version: .*$`: "version: " + strings.TrimPrefix(r.version, "v"), `(?m)^appVersion: .*$`: `appVersion: "` + r.version + `"`})
		},
	}
	if name != "atoll-installation" { // that chart uses the image of the operator
		changed["values.yaml"] = func(text string) (string, error) {
			return replaceAll(text, map[string]string{`(?m)^  repository: .*$`: "  repository: " + r.repository, `(?m)^  digest: ""$`: "  digest: " + digest.String()})
		}
	}
	entries, err := filesOf(directory, name, func(file string) bool { return changed[file] != nil })
	if err != nil {
		return "", err
	}
	for _, file := range []string{"Chart.yaml", "values.yaml"} { // Helm requires Chart.yaml first
		change := changed[file]
		if change == nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(directory, file))
		if err != nil {
			return "", err
		}
		content, err := change(string(text))
		if err != nil {
			return "", fmt.Errorf("%s of chart %s: %w", file, name, err)
		}
		entries = append([]entry{{name: name + "/" + file, mode: 0o644, content: []byte(content)}}, entries...)
	}
	packed := name + "-" + strings.TrimPrefix(r.version, "v") + ".tgz"
	return packed, writeArchive(filepath.Join(r.out, packed), r.created, entries)
}

// replaceAll replaces one match of each expression, and fails without a match.
func replaceAll(text string, replacements map[string]string) (string, error) {
	for expression, replacement := range replacements {
		pattern := regexp.MustCompile(expression)
		if found := len(pattern.FindAllString(text, -1)); found != 1 {
			return "", fmt.Errorf("%d lines match %s, expected one", found, expression)
		}
		text = pattern.ReplaceAllLiteralString(text, replacement)
	}
	return text, nil
}
