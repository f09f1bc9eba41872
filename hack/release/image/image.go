// Package image builds container images from static binaries with go-containerregistry: FROM scratch, a layer for each binary. The same
// input has the same digest on every machine.
package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// User is the numeric user and group that containers run as.
const User = 65532

// Options describe an image.
type Options struct {
	// Platform has the operating system and the architecture of the binaries.
	Platform v1.Platform
	// Binaries are paths of static executables; each is added as /<base name> with mode 0755.
	Binaries []string
	// Labels are the labels of the configuration.
	Labels map[string]string
	// Created is the time of the image and of its files.
	Created time.Time
}

// Build returns the image.
func Build(o Options) (v1.Image, error) {
	base, err := newLayer(func(tw *tar.Writer) error { return writeBase(tw, o.Created) })
	if err != nil {
		return nil, err
	}
	add := []mutate.Addendum{addendum(base, "users and /tmp", o.Created)}
	binaries := slices.SortedFunc(slices.Values(o.Binaries), func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	for _, path := range binaries {
		layer, err := newLayer(func(tw *tar.Writer) error { return writeBinary(tw, path, o.Created) })
		if err != nil {
			return nil, fmt.Errorf("adding %s: %w", path, err)
		}
		add = append(add, addendum(layer, filepath.Base(path), o.Created))
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
	file.Config = v1.Config{User: fmt.Sprintf("%d:%d", User, User), Env: []string{"PATH=/"}, WorkingDir: "/", Labels: o.Labels}
	return mutate.ConfigFile(image, file)
}

func addendum(layer v1.Layer, what string, created time.Time) mutate.Addendum {
	return mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: what}}
}

// newLayer returns a layer whose content is written anew each time that it is read, so that binaries are not held in memory.
func newLayer(write func(*tar.Writer) error) (v1.Layer, error) {
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() {
			tw := tar.NewWriter(writer)
			writer.CloseWithError(errors.Join(write(tw), tw.Close()))
		}()
		return reader, nil
	}, tarball.WithMediaType(types.OCILayer))
}

// writeBase writes users for programs that look up their own, and a /tmp.
func writeBase(tw *tar.Writer, created time.Time) error {
	for _, dir := range []struct {
		name string
		mode int64
	}{{"etc/", 0o755}, {"tmp/", 0o1777}} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode, ModTime: created}); err != nil {
			return err
		}
	}
	for _, file := range []struct{ name, content string }{
		{"etc/group", fmt.Sprintf("root:x:0:\nnonroot:x:%d:\n", User)},
		{"etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/tmp:/sbin/nologin\n", User, User)},
	} {
		if err := tw.WriteHeader(&tar.Header{Name: file.name, Mode: 0o644, Size: int64(len(file.content)), ModTime: created}); err != nil {
			return err
		}
		if _, err := io.Copy(tw, bytes.NewReader([]byte(file.content))); err != nil {
			return err
		}
	}
	return nil
}

func writeBinary(tw *tar.Writer, path string, created time.Time) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	if err := tw.WriteHeader(&tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: info.Size(), ModTime: created}); err != nil {
		return err
	}
	_, err = io.Copy(tw, file)
	return err
}
