// Package imagetar builds container images from static binaries, or from a directory: one layer, FROM scratch, in the tar
// format that `docker save` writes and that containerd, podman and kind import. The same input produces the same bytes. It
// does not support registries, multi-layer images, or build steps that run inside the image.
package imagetar

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// User is the numeric user and group that containers of these images run as.
const User = 65532

// epoch is the time of every file and of the image, so that equal binaries produce equal images.
var epoch = time.Unix(0, 0).UTC()

// Image is the content of one image.
type Image struct {
	// Name is the canonical reference, with registry and tag ("docker.io/local/atoll:dev"). A kubelet looks up images
	// by their canonical name, and would not find a short one.
	Name string
	// Binaries are paths of static executables on this machine; each is added as /<base name> with mode 0755.
	Binaries []string
	// Root is a directory that the image has as its root, instead of binaries. All files belong to root.
	Root string
	// User and group that containers run as; 0 means User.
	User int
	// Env are variables, NAME=value.
	Env []string
	// Entrypoint is the default command of a container. Empty: the only binary, or nothing if there are many.
	Entrypoint []string
}

// Write writes the image to w. It writes the layer to a temporary file first, because an image refers to its layer by
// digest.
func Write(w io.Writer, image Image) error {
	if err := image.validate(); err != nil {
		return fmt.Errorf("image %q: %w", image.Name, err)
	}
	layer, err := os.CreateTemp("", "imagetar-layer-*")
	if err != nil {
		return fmt.Errorf("image %q: making room for its layer: %w", image.Name, err)
	}
	defer os.Remove(layer.Name())
	defer layer.Close()

	digest := sha256.New()
	write := func(w io.Writer) error { return writeLayer(w, image.Binaries) }
	if image.Root != "" {
		write = func(w io.Writer) error { return writeTree(w, image.Root) }
	}
	if err := write(io.MultiWriter(layer, digest)); err != nil {
		return fmt.Errorf("image %q: writing its layer: %w", image.Name, err)
	}
	size, err := layer.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("image %q: measuring its layer: %w", image.Name, err)
	}
	if _, err := layer.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("image %q: reading its layer back: %w", image.Name, err)
	}
	if err := writeArchive(w, image, layer, size, hex.EncodeToString(digest.Sum(nil))); err != nil {
		return fmt.Errorf("image %q: writing the archive: %w", image.Name, err)
	}
	return nil
}

// validate refuses images that a cluster could not use, before anything is written.
func (i Image) validate() error {
	registry, rest, ok := strings.Cut(i.Name, "/")
	if !ok || !strings.ContainsAny(registry, ".:") {
		return errors.New("the name must be canonical and start with a registry, as in docker.io/local/name:tag")
	}
	if !strings.Contains(rest, ":") {
		return errors.New("the name must end with a tag, as in docker.io/local/name:tag")
	}
	if (len(i.Binaries) == 0) == (i.Root == "") {
		return errors.New("it needs binaries or a root directory, and not both")
	}
	seen := map[string]string{}
	for _, path := range i.Binaries {
		base := filepath.Base(path)
		if other, dup := seen[base]; dup {
			return fmt.Errorf("%s and %s would both be /%s", other, path, base)
		}
		seen[base] = path
	}
	return nil
}

func (i Image) entrypoint() []string {
	if len(i.Entrypoint) == 0 && len(i.Binaries) == 1 {
		return []string{"/" + filepath.Base(i.Binaries[0])}
	}
	return i.Entrypoint
}

func (i Image) user() int { return cmp.Or(i.User, User) }

func (i Image) env() []string {
	if len(i.Env) == 0 && i.Root == "" {
		return []string{"PATH=/"}
	}
	return i.Env
}

// writeLayer writes the root file system: users for programs that look up their own, a /tmp, and the binaries.
func writeLayer(w io.Writer, binaries []string) error {
	tw := tar.NewWriter(w)
	for _, dir := range []struct {
		name string
		mode int64
	}{{"etc/", 0o755}, {"tmp/", 0o1777}} {
		if err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir.name, Mode: dir.mode, ModTime: epoch}); err != nil {
			return err
		}
	}
	for _, file := range []struct{ name, content string }{
		{"etc/group", fmt.Sprintf("root:x:0:\nnonroot:x:%d:\n", User)},
		{"etc/passwd", fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%d:nonroot:/tmp:/sbin/nologin\n", User, User)},
	} {
		if err := writeBytes(tw, file.name, []byte(file.content)); err != nil {
			return err
		}
	}
	sorted := slices.SortedFunc(slices.Values(binaries), func(a, b string) int {
		return strings.Compare(filepath.Base(a), filepath.Base(b))
	})
	for _, path := range sorted {
		if err := writeBinary(tw, path); err != nil {
			return fmt.Errorf("adding %s: %w", path, err)
		}
	}
	return tw.Close()
}

func writeBinary(tw *tar.Writer, path string) error {
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
	if err := tw.WriteHeader(&tar.Header{Name: filepath.Base(path), Mode: 0o755, Size: info.Size(), ModTime: epoch}); err != nil {
		return err
	}
	_, err = io.Copy(tw, file)
	return err
}

// writeArchive writes the three parts of a `docker save` archive: configuration, layer, and the manifest that refers to
// them.
func writeArchive(w io.Writer, image Image, layer io.Reader, size int64, layerDigest string) error {
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"created":      epoch.Format(time.RFC3339),
		"config": map[string]any{
			"User":       fmt.Sprintf("%d:%d", image.user(), image.user()),
			"Env":        image.env(),
			"Entrypoint": image.entrypoint(),
			"WorkingDir": "/",
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerDigest}},
		"history": []map[string]any{{"created": epoch.Format(time.RFC3339), "created_by": "hack/devcluster build-image"}},
	})
	if err != nil {
		return err
	}
	configDigest := sha256.Sum256(config)
	configName := hex.EncodeToString(configDigest[:]) + ".json"
	layerName := layerDigest + "/layer.tar"
	manifest, err := json.Marshal([]map[string]any{{
		"Config":   configName,
		"RepoTags": []string{image.Name},
		"Layers":   []string{layerName},
	}})
	if err != nil {
		return err
	}

	tw := tar.NewWriter(w)
	if err := writeBytes(tw, configName, config); err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Name: layerName, Mode: 0o644, Size: size, ModTime: epoch}); err != nil {
		return err
	}
	if _, err := io.Copy(tw, layer); err != nil {
		return err
	}
	if err := writeBytes(tw, "manifest.json", manifest); err != nil {
		return err
	}
	return tw.Close()
}

func writeBytes(tw *tar.Writer, name string, content []byte) error {
	if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: epoch}); err != nil {
		return err
	}
	_, err := tw.Write(content)
	return err
}

// WriteFile writes the image to path atomically.
func WriteFile(path string, image Image) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".imagetar-*")
	if err != nil {
		return fmt.Errorf("image %q: creating %s: %w", image.Name, path, err)
	}
	defer os.Remove(tmp.Name())
	if err := errors.Join(Write(tmp, image), tmp.Chmod(0o644), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("image %q: creating %s: %w", image.Name, path, err)
	}
	return nil
}
