package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestNotes(t *testing.T) {
	root := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=Test", "-c", "user.email=test@example.org"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	notes := func() string {
		t.Helper()
		r := release{version: "v1.0.0", repository: "registry.example.org/atoll", commit: "HEAD", root: root}
		text, err := r.notes(v1.Hash{Algorithm: "sha256", Hex: "abc"})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	git("init", "--quiet")
	for _, subject := range []string{"Begin", "proxy: first"} {
		git("commit", "--quiet", "--allow-empty", "--message", subject)
	}
	const head = "# v1.0.0\n\nImage: `registry.example.org/atoll@sha256:abc`\n\nHow to verify and install it, also without access to the internet: docs/releases.md.\n\n"
	if got := notes(); got != head+features {
		t.Errorf("the first release: got\n%s", got)
	}
	git("tag", "v0.9.0")
	for _, subject := range []string{"proxy: second", "infrastructure/mcp, docs: a page", "Repair what is broken: all", "infrastructure: names"} {
		git("commit", "--quiet", "--allow-empty", "--message", subject)
	}
	git("tag", "v1.0.0") // of this release: its changes start at the previous one
	want := head + "## Changes since v0.9.0\n\n### infrastructure\n\n- infrastructure: names\n- infrastructure/mcp, docs: a page\n\n" +
		"### other\n\n- Repair what is broken: all\n\n### proxy\n\n- proxy: second\n"
	if got := notes(); got != want {
		t.Errorf("a later release: got\n%s\nwant\n%s", got, want)
	}
}

// The notes of the first release name existing pages.
func TestFeaturesNamePages(t *testing.T) {
	for _, page := range []string{"docs/README.md", "docs/coming-from-kcp.md", "docs/releases.md"} {
		_, err := os.Stat(filepath.Join("../..", page))
		if page != "docs/releases.md" && !strings.Contains(features, page) {
			err = errors.Join(err, errors.New("is not named"))
		}
		if err != nil {
			t.Errorf("%s: %v", page, err)
		}
	}
}
