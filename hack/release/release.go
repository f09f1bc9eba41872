package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// source is the address of the sources.
const source = "https://github.com/atoll-dev/atoll"

// imageDirectory is the directory of the OCI layout.
const imageDirectory = "image"

// release is the input and output of one run.
type release struct {
	version, commit, repository string
	// url is the address from which users download the files.
	url     string
	created time.Time
	// binaries is the directory with a folder for each platform, root the directory of the sources, out the directory of the results.
	binaries, root, out string
	// servers are the programs of the image, plugins the programs for users.
	servers, plugins []string
	// platforms are the platforms of the binaries, read from the names of folders.
	platforms []v1.Platform
	// compiler is the version of Go that built the binaries.
	compiler string
	// licenses are the licenses of the modules in the binaries, by path.
	licenses map[string]license
	progress func(format string, args ...any)
}

// run creates all files of the release.
func (r *release) run() error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var err error
	if r.platforms, err = platforms(r.binaries); err != nil {
		return err
	}
	if err := r.readBinaries(r.allBinaries()); err != nil {
		return err
	}
	images, err := r.buildImages()
	if err != nil {
		return err
	}
	r.progress("image for %d platforms", len(images))
	digest, err := r.writeLayout(filepath.Join(r.out, imageDirectory), images)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	r.progress("%s:%s@%s", r.repository, r.version, digest)
	files, err := r.writeFiles(images, digest)
	if err != nil {
		return err
	}
	layout, err := filesOf(filepath.Join(r.out, imageDirectory), imageDirectory, func(string) bool { return false })
	if err != nil {
		return err
	}
	for _, e := range layout {
		files = append(files, e.name)
	}
	slices.Sort(files)
	return r.writeSums(files)
}

// writeFiles writes all files except the image, and returns their names.
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
	for name, directory := range map[string]string{"definitions.yaml": "config/crd/bases", "definitions-sync-agent.yaml": "config/sync-agent/crd"} {
		definitions, err := r.definitions(directory)
		if err := write(name, definitions, err); err != nil {
			return nil, err
		}
	}
	if err := write("image.digest", []byte(r.repository+":"+r.version+"@"+digest.String()+"\n"), nil); err != nil {
		return nil, err
	}
	provenance, err := r.provenance(r.repository, digest)
	if err := write("provenance.json", append(provenance, '\n'), err); err != nil {
		return nil, err
	}
	if err := write("licenses.txt", notices(r.licenses), nil); err != nil {
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
	}
	plugins, err := r.writePlugins()
	if err != nil {
		return nil, err
	}
	files = append(files, plugins...)
	for _, chart := range []string{"atoll-operator", "atoll-installation", "atoll-sync-agent"} {
		name, err := r.writeChart(filepath.Join(r.root, "charts", chart), digest)
		if err != nil {
			return nil, err
		}
		files = append(files, name)
		r.progress("%s", name)
	}
	return files, nil
}

// definitions are all CustomResourceDefinitions of a directory in one file.
func (r *release) definitions(directory string) ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(r.root, directory, "*_*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no definitions in %s", directory)
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
