package main

import (
	_ "embed"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// features are the notes of the first release, which has no changes.
//
//go:embed features.md
var features string

// notes returns the notes, which name the image, and the changes since the last tag.
func (r *release) notes(digest v1.Hash) ([]byte, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", r.root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	news := features
	if tag, err := git("describe", "--tags", "--match", "v*", "--abbrev=0", r.commit+"^"); err == nil {
		subjects, err := git("log", "--no-merges", "--format=%s", tag+".."+r.commit)
		if err != nil {
			return nil, fmt.Errorf("reading the commits since %s: %w", tag, err)
		}
		news = "## Changes since " + tag + "\n" + changes(subjects)
	}
	const verify = "How to verify and install it, also without access to the internet: docs/releases.md."
	return fmt.Appendf(nil, "# %s\n\nImage: `%s@%s`\n\n%s\n\n%s", r.version, r.repository, digest, verify, news), nil
}

// packages matches the packages at the start of a subject, and captures the first element of the first.
var packages = regexp.MustCompile(`^([\w.-]+)[\w./-]*(?:, [\w./-]+)*: `)

// changes returns the subjects of commits, with a section for each first element of their packages.
func changes(subjects string) string {
	groups := map[string]string{}
	for subject := range strings.Lines(subjects) {
		group := "other"
		if match := packages.FindStringSubmatch(subject); match != nil {
			group = match[1]
		}
		groups[group] += "- " + strings.TrimSpace(subject) + "\n"
	}
	var text strings.Builder
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&text, "\n### %s\n\n%s", group, groups[group])
	}
	return text.String()
}
