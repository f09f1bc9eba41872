package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// buildPrograms builds a small program under two names for two platforms.
func buildPrograms(t *testing.T) string {
	t.Helper()
	source, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example.org/small\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { println(\"small\") }\n"} {
		if err := os.WriteFile(filepath.Join(source, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, name := range []string{"kcp", "operator", "kubectl-ws"} {
			cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(out, "linux_"+arch, name), ".")
			cmd.Dir, cmd.Env = source, append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("building: %v\n%s", err, text)
			}
		}
	}
	return out
}

func runRelease(t *testing.T, binaries string) string {
	t.Helper()
	out := t.TempDir()
	cmd := newCommand()
	cmd.SetOut(io.Discard)
	cmd.SetArgs([]string{
		"--version=v1.2.3", "--commit=HEAD", "--created=1000000000", "--repository=registry.example.org/atoll", "--binaries=" + binaries,
		"--root=../..", "--out=" + out, "--servers=kcp,operator", "--plugins=kubectl-ws",
	})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRelease(t *testing.T) {
	binaries := buildPrograms(t)
	first, second := runRelease(t, binaries), runRelease(t, binaries)
	t.Run("the same input has the same bytes", func(t *testing.T) {
		entries, err := filesOf(first, "", func(string) bool { return false })
		if err != nil || len(entries) < 15 {
			t.Fatalf("%d files: %v", len(entries), err)
		}
		for _, e := range entries {
			a, b := mustSum(t, e.path), mustSum(t, filepath.Join(second, e.name))
			if a != b {
				t.Errorf("%s differs", e.name)
			}
		}
	})
	t.Run("the image is valid, for both platforms", func(t *testing.T) { checkLayout(t, filepath.Join(first, "image")) })
	t.Run("bills list modules", func(t *testing.T) {
		text := read(t, filepath.Join(first, "sbom-linux-arm64.spdx.json"))
		var bill struct {
			Packages []struct{ Name string } `json:"packages"`
		}
		if err := json.Unmarshal(text, &bill); err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, p := range bill.Packages {
			names[p.Name] = true
		}
		for _, name := range []string{"registry.example.org/atoll", "kcp", "operator", "stdlib"} {
			if !names[name] {
				t.Errorf("%s is not in the bill of materials", name)
			}
		}
	})
	t.Run("the chart has the image of the release", func(t *testing.T) {
		files := unpack(t, filepath.Join(first, "atoll-operator-1.2.3.tgz"))
		digest := strings.TrimSpace(string(read(t, filepath.Join(first, "image.digest"))))
		if _, want, _ := strings.Cut(digest, "@"); !strings.Contains(files["atoll-operator/values.yaml"], "digest: "+want) {
			t.Errorf("values.yaml does not have %s", want)
		}
		if !strings.Contains(files["atoll-operator/Chart.yaml"], "\nversion: 1.2.3\n") || files["atoll-operator/templates/deployment.yaml"] == "" {
			t.Errorf("the chart has %d files, Chart.yaml:\n%s", len(files), files["atoll-operator/Chart.yaml"])
		}
	})
	t.Run("checksums are those of the files", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = first
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// checkLayout checks the images and what refers to them.
func checkLayout(t *testing.T, directory string) {
	t.Helper()
	path, err := layout.FromPath(directory)
	if err != nil {
		t.Fatal(err)
	}
	top, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	images, err := index.IndexManifest()
	if err != nil || len(images.Manifests) != 2 {
		t.Fatalf("images: %+v, %v", images, err)
	}
	subjects := map[v1.Hash]bool{}
	for _, artifact := range manifest.Manifests[1:] {
		image, err := top.Image(artifact.Digest)
		if err != nil {
			t.Fatal(err)
		}
		m, err := image.Manifest()
		if err != nil || m.Subject == nil {
			t.Fatalf("an artifact has no subject: %v", err)
		}
		subjects[m.Subject.Digest] = true
	}
	for _, image := range append(images.Manifests, manifest.Manifests[0]) {
		if !subjects[image.Digest] {
			t.Errorf("nothing is attached to %s", image.Digest)
		}
	}
}

func mustSum(t *testing.T, path string) string {
	t.Helper()
	sum, err := sumOf(path)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for reader := tar.NewReader(zip); ; {
		header, err := reader.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(text)
	}
}

func TestRefused(t *testing.T) {
	for name, tc := range map[string]struct{ version, want string }{
		"a version that is none": {"latest", "--version: got \"latest\""},
		"no binaries":            {"v1.0.0", "no folders linux_<architecture>"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			cmd.SetArgs([]string{"--version=" + tc.version, "--commit=a", "--created=1", "--repository=r.example.org/a", "--binaries=" + t.TempDir(), "--out=" + t.TempDir(), "--servers=a", "--plugins=b"})
			if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
