package imagetar

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

func readEntries(t *testing.T, archive []byte) (map[string]*tar.Header, map[string][]byte) {
	t.Helper()
	headers, contents := map[string]*tar.Header{}, map[string][]byte{}
	for tr := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := tr.Next()
		if err == io.EOF {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		headers[header.Name] = header
		if contents[header.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWrite(t *testing.T) {
	now := time.Now()
	image := Image{Name: "docker.io/local/two:dev", Binaries: []string{writeBinaryFile(t, "kcp", "KCP", now), writeBinaryFile(t, "etcd", "ETCD", now)}}
	var out bytes.Buffer
	if err := Write(&out, image); err != nil {
		t.Fatal(err)
	}
	_, outer := readEntries(t, out.Bytes())

	var manifests []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(outer["manifest.json"], &manifests); err != nil {
		t.Fatal(err)
	}
	if len(manifests) != 1 || manifests[0].RepoTags[0] != image.Name || len(manifests[0].Layers) != 1 {
		t.Fatalf("manifest: %s", outer["manifest.json"])
	}
	layer := outer[manifests[0].Layers[0]]
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(outer[manifests[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(layer)
	if want := "sha256:" + hex.EncodeToString(digest[:]); config.RootFS.DiffIDs[0] != want {
		t.Errorf("the configuration names layer %s, the layer is %s", config.RootFS.DiffIDs[0], want)
	}
	if config.Config.User != "65532:65532" || len(config.Config.Entrypoint) != 0 {
		t.Errorf("config: %+v", config.Config)
	}

	headers, contents := readEntries(t, layer)
	for name, mode := range map[string]int64{"kcp": 0o755, "etcd": 0o755, "tmp/": 0o1777, "etc/passwd": 0o644} {
		if headers[name] == nil || headers[name].Mode != mode || !headers[name].ModTime.Equal(epoch) {
			t.Errorf("%s: %+v, want mode %o at the epoch", name, headers[name], mode)
		}
	}
	if string(contents["etcd"]) != "ETCD" || !strings.Contains(string(contents["etc/passwd"]), ":65532:65532:") {
		t.Errorf("contents: %q", contents)
	}
}

func TestWriteIsReproducible(t *testing.T) {
	write := func(modified time.Time, reverse bool) string {
		paths := []string{writeBinaryFile(t, "a", "A", modified), writeBinaryFile(t, "b", "B", modified)}
		if reverse {
			paths[0], paths[1] = paths[1], paths[0]
		}
		out := filepath.Join(t.TempDir(), "image.tar")
		if err := WriteFile(out, Image{Name: "docker.io/local/x:1", Binaries: paths}); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	if write(time.Unix(1, 0), false) != write(time.Now(), true) {
		t.Error("two images of the same binaries differ")
	}
}

// An image of a directory has its files with their modes, and no others.
func TestWriteDirectory(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, "usr", "bin"), 0o755), os.WriteFile(filepath.Join(root, "usr", "bin", "server"), []byte("SERVER"), 0o755),
		os.WriteFile(filepath.Join(root, "data"), nil, 0o640), os.Symlink("usr/bin", filepath.Join(root, "bin")),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755), os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
	); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, Image{Name: "docker.io/library/server:1", Root: root, User: 999, Env: []string{"PATH=/bin"}, Entrypoint: []string{"server"}}); err != nil {
		t.Fatal(err)
	}
	_, outer := readEntries(t, out.Bytes())
	for name, content := range outer {
		if strings.HasSuffix(name, ".json") && name != "manifest.json" && !strings.Contains(string(content), `"User":"999:999"`) {
			t.Errorf("configuration %s", content)
		}
		if !strings.HasSuffix(name, "layer.tar") {
			continue
		}
		headers, contents := readEntries(t, content)
		if len(headers) != 6 || string(contents["usr/bin/server"]) != "SERVER" || headers["bin"].Linkname != "usr/bin" {
			t.Errorf("entries %v", headers)
		}
		for name, mode := range map[string]int64{"usr/bin/server": 0o755, "data": 0o640, "tmp/": 0o1777, "usr/": 0o755} {
			if headers[name] == nil || headers[name].Mode != mode || headers[name].Uid != 0 || !headers[name].ModTime.Equal(epoch) {
				t.Errorf("%s: %+v, want mode %o", name, headers[name], mode)
			}
		}
	}
}

func TestDefaultEntrypoint(t *testing.T) {
	if got := (Image{Binaries: []string{"/somewhere/pause"}}).entrypoint(); len(got) != 1 || got[0] != "/pause" {
		t.Errorf("entrypoint %v", got)
	}
}

func TestWriteRejectsInvalidImages(t *testing.T) {
	for name, tc := range map[string]struct {
		image Image
		want  string
	}{
		"a name without a registry":     {Image{Name: "local/x:1", Binaries: []string{"/a"}}, "canonical"},
		"a name without a tag":          {Image{Name: "docker.io/local/x", Binaries: []string{"/a"}}, "tag"},
		"no binaries":                   {Image{Name: "docker.io/local/x:1"}, "binaries or a root"},
		"binaries and a root":           {Image{Name: "docker.io/local/x:1", Binaries: []string{"/a"}, Root: "/b"}, "binaries or a root"},
		"two binaries of one name":      {Image{Name: "docker.io/local/x:1", Binaries: []string{"/a/b", "/c/b"}}, "both be /b"},
		"a binary that does not exist":  {Image{Name: "docker.io/local/x:1", Binaries: []string{"/does/not/exist"}}, "no such file"},
		"a folder in place of a binary": {Image{Name: "docker.io/local/x:1", Binaries: []string{os.TempDir()}}, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Write(io.Discard, tc.image); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error about %q", err, tc.want)
			}
		})
	}
}
