package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/atoll-dev/atoll/hack/release/image"
)

// Media types of the documents that are attached to images, as the tools that read them expect.
const (
	mediaSPDX   = "application/spdx+json"
	mediaInToto = "application/vnd.in-toto+json"
)

// built is the image of one platform.
type built struct {
	platform v1.Platform
	image    v1.Image
	binaries []string
}

// platforms returns the platforms whose binaries are below a directory, in folders named <os>_<architecture>, sorted.
func platforms(directory string) ([]v1.Platform, error) {
	entries, err := filepath.Glob(filepath.Join(directory, "*_*"))
	if err != nil {
		return nil, err
	}
	found := make([]v1.Platform, len(entries))
	for i, entry := range entries {
		system, architecture, _ := strings.Cut(filepath.Base(entry), "_")
		found[i] = v1.Platform{OS: system, Architecture: architecture}
	}
	if !slices.ContainsFunc(found, hasImage) {
		return nil, fmt.Errorf("there are no folders linux_<architecture> in %s", directory)
	}
	return found, nil
}

// hasImage reports whether a platform has an image. The others have plug-ins only.
func hasImage(platform v1.Platform) bool { return platform.OS == "linux" }

// buildImages builds the image of each platform.
func (r *release) buildImages() ([]built, error) {
	var all []built
	for _, platform := range r.platforms {
		if !hasImage(platform) {
			continue
		}
		b := built{platform: platform, binaries: r.paths(platform, r.servers)}
		var err error
		if b.image, err = image.Build(image.Options{Platform: platform, Binaries: b.binaries, Labels: r.labels(), Notices: notices(r.licenses), Created: r.created}); err != nil {
			return nil, fmt.Errorf("image for %s/%s: %w", platform.OS, platform.Architecture, err)
		}
		all = append(all, b)
	}
	return all, nil
}

// paths returns the paths of programs for a platform.
func (r *release) paths(platform v1.Platform, names []string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		if platform.OS == "windows" {
			name += ".exe"
		}
		paths[i] = filepath.Join(r.binaries, platform.OS+"_"+platform.Architecture, name)
	}
	return paths
}

// allBinaries returns the paths of the programs for all platforms.
func (r *release) allBinaries() []string {
	var paths []string
	for _, platform := range r.platforms {
		if hasImage(platform) {
			paths = append(paths, r.paths(platform, r.servers)...)
		}
		paths = append(paths, r.paths(platform, r.plugins)...)
	}
	return paths
}

// readBinaries reads from binaries the version of Go that built them, and the licenses of their modules. It refuses binaries of several
// versions of Go, because such a build is not reproducible.
func (r *release) readBinaries(paths []string) error {
	linked := map[string]bool{}
	for _, path := range paths {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if r.compiler == "" {
			r.compiler = info.GoVersion
		}
		if info.GoVersion != r.compiler {
			return fmt.Errorf("%s is built with %s, others with %s", path, info.GoVersion, r.compiler)
		}
		for _, module := range info.Deps {
			linked[module.Path] = true
		}
	}
	var err error
	r.licenses, err = findLicenses(r.root, slices.Sorted(maps.Keys(linked)))
	return err
}

// labels returns the labels of the image, with the keys of the OCI.
func (r *release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "atoll",
		"org.opencontainers.image.description": "kcp-compatible control planes: servers, operator, sync agent and infrastructure provider",
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.commit,
		"org.opencontainers.image.created":     r.created.Format("2006-01-02T15:04:05Z"),
		"org.opencontainers.image.licenses":    ownLicense,
	}
}

// writeLayout writes the images, an index of them, and the documents attached to each, as an OCI layout. It returns the digest of the
// index.
func (r *release) writeLayout(directory string, images []built) (v1.Hash, error) {
	if err := os.RemoveAll(directory); err != nil {
		return v1.Hash{}, err
	}
	path, err := layout.Write(directory, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: b.image, Descriptor: v1.Descriptor{Platform: &b.platform}})
	}
	reference := r.repository + ":" + r.version
	annotations := map[string]string{"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": reference}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return v1.Hash{}, err
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	for _, b := range images {
		if err := r.attach(path, b); err != nil {
			return v1.Hash{}, err
		}
	}
	provenance, err := r.provenance(r.repository, digest)
	if err != nil {
		return v1.Hash{}, err
	}
	subject, err := partial.Descriptor(index)
	if err != nil {
		return v1.Hash{}, err
	}
	return digest, appendArtifact(path, subject, mediaInToto, provenance)
}

// attach adds the bill of materials of an image to the layout.
func (r *release) attach(path layout.Path, b built) error {
	subject, err := partial.Descriptor(b.image)
	if err != nil {
		return err
	}
	bill, err := r.billOfMaterials(b)
	if err != nil {
		return err
	}
	return appendArtifact(path, subject, mediaSPDX, bill)
}

// appendArtifact adds a document that refers to a manifest.
func appendArtifact(path layout.Path, subject *v1.Descriptor, mediaType types.MediaType, content []byte) error {
	artifact, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, mediaType), types.OCIManifestSchema1), mutate.Addendum{Layer: static.NewLayer(content, mediaType)})
	if err != nil {
		return err
	}
	referring, ok := mutate.Subject(artifact, v1.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}).(v1.Image)
	if !ok {
		return errors.New("an artifact with a subject is no image")
	}
	return path.AppendImage(referring, layout.WithAnnotations(map[string]string{"org.opencontainers.image.title": string(mediaType)}))
}

// provenance returns the statement about the source from which an artifact was built.
func (r *release) provenance(name string, digest v1.Hash) ([]byte, error) {
	type object = map[string]any
	return json.MarshalIndent(object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       []object{{"name": name, "digest": object{digest.Algorithm: digest.Hex}}},
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            source + "/blob/main/docs/releases.md",
				"externalParameters":   object{"target": "make release", "version": r.version, "repository": r.repository},
				"internalParameters":   object{"go": r.compiler},
				"resolvedDependencies": []object{{"uri": "git+" + source, "digest": object{"gitCommit": r.commit}}},
			},
			"runDetails": object{"builder": object{"id": source + "/blob/main/Makefile"}},
		},
	}, "", "  ")
}
