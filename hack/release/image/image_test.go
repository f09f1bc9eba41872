package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	epoch    = time.Unix(0, 0).UTC()
	platform = v1.Platform{OS: "linux", Architecture: "arm64"}
)

// writeBinaryFile writes an executable stand-in with the given modification time.
func writeBinaryFile(t *testing.T, name, content string, modified time.Time) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, modified, modified); err != nil {
		t.Fatal(err)
	}
	return path
}

// archived builds an image, writes it as an archive, and reads it back.
func archived(t *testing.T, reference string, o Options) (v1.Image, string) {
	t.Helper()
	built, err := Build(o)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := WriteArchive(path, reference, built); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	return image, path
}

func configOf(t *testing.T, image v1.Image) *v1.ConfigFile {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// readFiles returns the files of an image.
func readFiles(t *testing.T, image v1.Image) (map[string]*tar.Header, map[string]string) {
	t.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	headers, contents := map[string]*tar.Header{}, map[string]string{}
	for tr := tar.NewReader(files); ; {
		header, err := tr.Next()
		if err == io.EOF {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		path := strings.TrimSuffix(header.Name, "/")
		headers[path], contents[path] = header, string(text)
	}
}

func TestBinaries(t *testing.T) {
	for title, tc := range map[string]struct {
		oneLayer bool
		layers   []types.MediaType
	}{
		"for registries, a layer for each": {false, []types.MediaType{types.OCILayer, types.OCILayer, types.OCILayer}},
		"for import, one layer":            {true, []types.MediaType{types.OCIUncompressedLayer}},
	} {
		t.Run(title, func(t *testing.T) {
			now := time.Now()
			o := Options{
				Platform: platform, Binaries: []string{writeBinaryFile(t, "kcp", "KCP", now), writeBinaryFile(t, "etcd", "ETCD", now)},
				Labels: map[string]string{"a": "b"}, Notices: []byte("MIT"), Created: epoch, OneLayer: tc.oneLayer,
			}
			built, err := Build(o)
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := built.Manifest()
			if err != nil {
				t.Fatal(err)
			}
			var media []types.MediaType
			for _, layer := range manifest.Layers {
				media = append(media, layer.MediaType)
			}
			if !slices.Equal(media, tc.layers) {
				t.Errorf("layers %v, want %v", media, tc.layers)
			}
			image, _ := archived(t, "docker.io/local/two:dev", o)
			file := configOf(t, image)
			if c := file.Config; file.Architecture != "arm64" || c.User != "65532:65532" || len(c.Entrypoint) != 0 || c.Labels["a"] != "b" || !slices.Equal(c.Env, []string{"PATH=/"}) {
				t.Errorf("configuration %+v", file)
			}
			headers, contents := readFiles(t, image)
			for name, mode := range map[string]int64{"kcp": 0o755, "etcd": 0o755, "tmp": 0o1777, "etc/passwd": 0o644} {
				if headers[name] == nil || headers[name].Mode != mode || !headers[name].ModTime.Equal(epoch) {
					t.Errorf("%s: %+v, want mode %o at the epoch", name, headers[name], mode)
				}
			}
			if contents["etcd"] != "ETCD" || contents["licenses.txt"] != "MIT" || !strings.Contains(contents["etc/passwd"], ":65532:65532:") {
				t.Errorf("contents: %q", contents)
			}
		})
	}
}

func TestArchivesAreReproducible(t *testing.T) {
	write := func(modified time.Time, reverse bool) string {
		paths := []string{writeBinaryFile(t, "a", "A", modified), writeBinaryFile(t, "b", "B", modified)}
		if reverse {
			slices.Reverse(paths)
		}
		_, path := archived(t, "docker.io/local/x:1", Options{Platform: platform, Binaries: paths, Created: epoch, OneLayer: true})
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if write(time.Unix(1, 0), false) != write(time.Now(), true) {
		t.Error("two images of the same binaries differ")
	}
}

// An image of a directory contains its files with their modes, and no others.
func TestDirectory(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, "usr", "bin"), 0o755), os.WriteFile(filepath.Join(root, "usr", "bin", "server"), []byte("SERVER"), 0o755),
		os.WriteFile(filepath.Join(root, "data"), nil, 0o640), os.Symlink("usr/bin", filepath.Join(root, "bin")),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755), os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
	); err != nil {
		t.Fatal(err)
	}
	image, _ := archived(t, "docker.io/library/server:1", Options{Platform: platform, Root: root, User: 999, Env: []string{"PATH=/bin"}, Entrypoint: []string{"server"}, Created: epoch, OneLayer: true})
	if c := configOf(t, image).Config; c.User != "999:999" || !slices.Equal(c.Entrypoint, []string{"server"}) || !slices.Equal(c.Env, []string{"PATH=/bin"}) {
		t.Errorf("configuration %+v", c)
	}
	headers, contents := readFiles(t, image)
	if len(headers) != 6 || contents["usr/bin/server"] != "SERVER" || headers["bin"] == nil || headers["bin"].Linkname != "usr/bin" {
		t.Errorf("entries %v", headers)
	}
	for name, mode := range map[string]int64{"usr/bin/server": 0o755, "data": 0o640, "tmp": 0o1777, "usr": 0o755} {
		if headers[name] == nil || headers[name].Mode != mode || headers[name].Uid != 0 || !headers[name].ModTime.Equal(epoch) {
			t.Errorf("%s: %+v, want mode %o", name, headers[name], mode)
		}
	}
}

func TestDefaultEntrypoint(t *testing.T) {
	if got := (Options{Binaries: []string{"/somewhere/pause"}}).entrypoint(); len(got) != 1 || got[0] != "/pause" {
		t.Errorf("entrypoint %v", got)
	}
}

func TestRefused(t *testing.T) {
	binary := writeBinaryFile(t, "a", "A", epoch)
	for title, tc := range map[string]struct {
		name    string
		options Options
		want    string
	}{
		"a name without a registry":     {"local/x:1", Options{Binaries: []string{binary}}, "canonical"},
		"a name without a tag":          {"docker.io/local/x", Options{Binaries: []string{binary}}, "tag"},
		"no binaries":                   {"docker.io/local/x:1", Options{}, "binaries or a root"},
		"binaries and a root":           {"docker.io/local/x:1", Options{Binaries: []string{binary}, Root: "/b"}, "binaries or a root"},
		"two binaries of one name":      {"docker.io/local/x:1", Options{Binaries: []string{"/a/b", "/c/b"}}, "both be /b"},
		"a binary that does not exist":  {"docker.io/local/x:1", Options{Binaries: []string{"/does/not/exist"}}, "no such file"},
		"a folder in place of a binary": {"docker.io/local/x:1", Options{Binaries: []string{os.TempDir()}}, "not a regular file"},
	} {
		for _, oneLayer := range []bool{false, true} {
			t.Run(title, func(t *testing.T) {
				tc.options.OneLayer = oneLayer
				path := filepath.Join(t.TempDir(), "image.tar")
				image, err := Build(tc.options)
				if err == nil {
					err = WriteArchive(path, tc.name, image)
				}
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want an error about %q", err, tc.want)
				}
				if _, err := os.Stat(path); !os.IsNotExist(err) {
					t.Errorf("an archive is there: %v", err)
				}
			})
		}
	}
}
