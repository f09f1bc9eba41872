package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// source is the address of the sources.
const source = "https://github.com/atoll-dev/atoll"

// release is what is made in one run.
type release struct {
	version, commit, repository string
	created                     time.Time
	// binaries is the directory with a folder for each platform, root the directory of the sources, out that of the results.
	binaries, root, out string
	// servers are the programs of the image, plugins those for users.
	servers, plugins []string
	progress         func(format string, args ...any)
}

// run makes everything.
func (r *release) run() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	images, err := r.buildImages()
	if err != nil {
		return err
	}
	r.progress("image for %d platforms", len(images))
	digest, err := r.writeLayout(filepath.Join(r.out, "image"), images)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	r.progress("%s:%s@%s", r.repository, r.version, digest)
	files, err := r.writeFiles(images, digest)
	if err != nil {
		return err
	}
	slices.Sort(files)
	return r.writeSums(files)
}

// writeFiles writes everything but the image, and returns the names.
func (r *release) writeFiles(images []built, digest v1.Hash) ([]string, error) {
	var files []string
	write := func(name string, content []byte, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, name)
		r.progress("%s", name)
		return os.WriteFile(filepath.Join(r.out, name), content, 0o644)
	}
	definitions, err := r.definitions()
	if err := write("definitions.yaml", definitions, err); err != nil {
		return nil, err
	}
	if err := write("image.digest", []byte(r.repository+":"+r.version+"@"+digest.String()+"\n"), nil); err != nil {
		return nil, err
	}
	provenance, err := r.provenance(r.repository, digest)
	if err := write("provenance.json", append(provenance, '\n'), err); err != nil {
		return nil, err
	}
	notes, err := r.notes(digest)
	if err := write("notes.md", notes, err); err != nil {
		return nil, err
	}
	for _, b := range images {
		bill, err := r.billOfMaterials(b)
		if err := write(fmt.Sprintf("sbom-%s-%s.spdx.json", b.platform.OS, b.platform.Architecture), bill, err); err != nil {
			return nil, err
		}
		var plugins []entry
		for _, name := range r.plugins {
			plugins = append(plugins, entry{name: name, mode: 0o755, path: filepath.Join(folder(r.binaries, b.platform), name)})
		}
		name := fmt.Sprintf("kubectl-plugins-%s-%s-%s.tar.gz", r.version, b.platform.OS, b.platform.Architecture)
		if err := writeArchive(filepath.Join(r.out, name), r.created, plugins); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, name)
		r.progress("%s", name)
	}
	for _, chart := range []string{"atoll-operator", "atoll-installation"} {
		name, err := r.writeChart(filepath.Join(r.root, "charts", chart), digest)
		if err != nil {
			return nil, err
		}
		files = append(files, name)
		r.progress("%s", name)
	}
	return files, nil
}

// definitions are all CustomResourceDefinitions in one file.
func (r *release) definitions() ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(r.root, "config", "crd", "bases", "*.yaml"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("no definitions: %w", err)
	}
	var all bytes.Buffer
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		all.Write(text)
	}
	return all.Bytes(), nil
}

// notes are the subjects of the commits since the last tag.
func (r *release) notes(digest v1.Hash) ([]byte, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.Command("git", append([]string{"-C", r.root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commits, since := r.commit, ""
	if tag, err := git("describe", "--tags", "--abbrev=0", r.commit+"^"); err == nil {
		commits, since = tag+".."+r.commit, " since "+tag
	}
	subjects, err := git("log", "--no-merges", "--format=- %s", commits)
	if err != nil {
		return nil, fmt.Errorf("reading the commits: %w", err)
	}
	return []byte(fmt.Sprintf("# %s\n\nImage: `%s@%s`\n\nHow to verify and install it, also without access to the internet: docs/releases.md.\n\n## Changes%s\n\n%s\n", r.version, r.repository, digest, since, subjects)), nil
}

// writeSums writes the SHA-256 of each file, as sha256sum reads them.
func (r *release) writeSums(files []string) error {
	var sums strings.Builder
	for _, name := range files {
		sum, err := sumOf(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", sum, name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
