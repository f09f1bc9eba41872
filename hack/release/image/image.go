// Package image builds container images from static binaries, or from a directory, with go-containerregistry: FROM scratch, without a
// container engine. The same input has the same digest on every machine.
package image

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// User is the numeric user and group that containers run as by default.
const User = 65532

// Options describe an image.
type Options struct {
	// Platform is the operating system and the architecture of the binaries.
	Platform v1.Platform
	// Binaries are paths of static executables; each is added as /<base name> with mode 0755.
	Binaries []string
	// Root is a directory that becomes the root of the image, instead of binaries. All files belong to root.
	Root string
	// User and group that containers run as; 0 means User.
	User int
	// Env are variables, NAME=value. If it is empty, PATH contains the binaries.
	Env []string
	// Entrypoint is the default command of a container. If it is empty, it is the only binary, or not set if the image has several.
	Entrypoint []string
	// Labels are the labels of the configuration.
	Labels map[string]string
	// Notices are the licenses of the modules in the binaries. An image with notices has the file /licenses.txt.
	Notices []byte
	// Created is the time of the image and of its files.
	Created time.Time
	// OneLayer puts all files into one layer without compression, which is quick to write and to import. Otherwise each binary is a
	// compressed layer, so that registries and nodes fetch only those that changed.
	OneLayer bool
}

// Build returns the image.
func Build(o Options) (v1.Image, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	var add []mutate.Addendum
	for _, p := range o.parts() {
		layer, err := newLayer(p.write, !o.OneLayer)
		if err != nil {
			return nil, fmt.Errorf("adding %s: %w", p.what, err)
		}
		add = append(add, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: o.Created}, CreatedBy: p.what}})
	}
	image, err := mutate.Append(mutate.MediaType(mutate.ConfigMediaType(empty.Image, types.OCIConfigJSON), types.OCIManifestSchema1), add...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant, file.Created = o.Platform.OS, o.Platform.Architecture, o.Platform.Variant, v1.Time{Time: o.Created}
	user := cmp.Or(o.User, User)
	file.Config = v1.Config{User: fmt.Sprintf("%d:%d", user, user), Env: o.env(), Entrypoint: o.entrypoint(), WorkingDir: "/", Labels: o.Labels}
	return mutate.ConfigFile(image, file)
}

// validate refuses an image that could not run, before anything is written.
func (o Options) validate() error {
	if (len(o.Binaries) == 0) == (o.Root == "") {
		return errors.New("an image needs binaries or a root directory, and not both")
	}
	seen := map[string]string{}
	for _, path := range o.Binaries {
		base := filepath.Base(path)
		if other, dup := seen[base]; dup {
			return fmt.Errorf("%s and %s would both be /%s", other, path, base)
		}
		seen[base] = path
	}
	return nil
}

func (o Options) env() []string {
	if len(o.Env) == 0 && o.Root == "" {
		return []string{"PATH=/"}
	}
	return o.Env
}

func (o Options) entrypoint() []string {
	if len(o.Entrypoint) == 0 && len(o.Binaries) == 1 {
		return []string{"/" + filepath.Base(o.Binaries[0])}
	}
	return o.Entrypoint
}

// part is the content of a layer.
type part struct {
	what  string
	write func(*tar.Writer) error
}

// parts are the layers, the lowest first.
func (o Options) parts() []part {
	if o.Root != "" {
		return []part{{"files", func(tw *tar.Writer) error { return writeTree(tw, o.Root, o.Created) }}}
	}
	parts := []part{{"base", func(tw *tar.Writer) error { return writeBase(tw, o.Notices, o.Created) }}}
	for _, path := range slices.SortedFunc(slices.Values(o.Binaries), func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) }) {
		parts = append(parts, part{filepath.Base(path), func(tw *tar.Writer) error { return writeBinary(tw, path, o.Created) }})
	}
	if !o.OneLayer {
		return parts
	}
	return []part{{"binaries", func(tw *tar.Writer) error {
		for _, p := range parts {
			if err := p.write(tw); err != nil {
				return fmt.Errorf("%s: %w", p.what, err)
			}
		}
		return nil
	}}}
}
