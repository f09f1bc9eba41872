package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFindLicenses(t *testing.T) {
	found, err := findLicenses("../..", []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "sigs.k8s.io/yaml", "github.com/atoll-dev/atoll/api"})
	if err != nil {
		t.Fatal(err)
	}
	expressions := map[string]string{}
	for path, l := range found {
		expressions[path] = l.expression
	}
	if want := map[string]string{
		"stdlib": "BSD-3-Clause", "github.com/spf13/cobra": "Apache-2.0", "github.com/spf13/pflag": "BSD-3-Clause", "sigs.k8s.io/yaml": "Apache-2.0 AND BSD-3-Clause AND MIT",
		"github.com/atoll-dev/atoll/api": ownLicense,
	}; !maps.Equal(expressions, want) {
		t.Errorf("got %v, want %v", expressions, want)
	}
	if _, err := findLicenses("../..", []string{"example.org/unknown"}); err == nil || !strings.Contains(err.Error(), "example.org/unknown") {
		t.Errorf("a module that is not required: %v", err)
	}
}

func TestUnusableLicenses(t *testing.T) {
	apache, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	const gpl = `This program is free software: you can redistribute it and/or modify it under the terms of the GNU General Public License as published by
the Free Software Foundation, either version 3 of the License, or (at your option) any later version.`
	for name, tc := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no license":                       {map[string]string{"README.md": string(apache)}, "none found"},
		"words that are no license":        {map[string]string{"LICENSE": "All rights reserved."}, "none found"},
		"one that asks for more":           {map[string]string{"COPYING": gpl}, "GPL-3.0"},
		"one that asks for more, and ours": {map[string]string{"COPYING": gpl, "LICENSE": string(apache)}, "GPL-3.0"},
	} {
		t.Run(name, func(t *testing.T) {
			directory := t.TempDir()
			for file, text := range tc.files {
				if err := os.WriteFile(filepath.Join(directory, file), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := readLicense(directory); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %q, %v; want an error about %s", got, err, tc.want)
			}
		})
	}
}

func TestNotices(t *testing.T) {
	got := string(notices(map[string]license{"b": {texts: []string{"same\n"}}, "a": {texts: []string{"same\n", "notice"}}, "c": {texts: []string{"other"}}}))
	line := strings.Repeat("=", 80)
	if want := line + "\n\na\nb\n\nsame\n\n" + line + "\n\na\n\nnotice\n\n" + line + "\n\nc\n\nother\n\n"; got != want {
		t.Errorf("got\n%s", got)
	}
}
