package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// buildPrograms builds a small program under the names of servers and plug-ins for several platforms.
func buildPrograms(t *testing.T) string {
	t.Helper()
	source, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module example.org/small\n\ngo 1.26\n\nrequire github.com/atoll-dev/atoll/api v0.0.0\n\nreplace github.com/atoll-dev/atoll/api => ./api\n",
		"main.go":     "package main\n\nimport \"github.com/atoll-dev/atoll/api\"\n\nfunc main() { println(api.Name) }\n",
		"api/go.mod":  "module github.com/atoll-dev/atoll/api\n\ngo 1.26\n",
		"api/name.go": "package api\n\nvar Name = \"small\"\n",
	} {
		path := filepath.Join(source, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for platform, names := range map[string][]string{
		"linux_amd64": {"kcp", "operator", "kubectl-ws", "kubectl-create-workspace"}, "linux_arm64": {"kcp", "operator", "kubectl-ws", "kubectl-create-workspace"},
		"darwin_arm64": {"kubectl-ws", "kubectl-create-workspace"}, "windows_amd64": {"kubectl-ws.exe", "kubectl-create-workspace.exe"},
	} {
		system, arch, _ := strings.Cut(platform, "_")
		for _, name := range names {
			cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", filepath.Join(out, platform, name), ".")
			cmd.Dir, cmd.Env = source, append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
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
		"--root=../..", "--out=" + out, "--servers=kcp,operator", "--plugins=kubectl-ws,kubectl-create-workspace",
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
		bill, err := spdxjson.Read(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := spdxlib.ValidateDocument(bill); err != nil {
			t.Error(err)
		}
		type licenses struct{ declared, concluded string }
		got, all := map[string]licenses{}, ownLicense+" AND BSD-3-Clause"
		for _, p := range bill.Packages {
			name := p.PackageName + "@" + p.PackageVersion
			if p.PackageName == "registry.example.org/atoll" {
				name = "image"
			}
			got[name] = licenses{p.PackageLicenseDeclared, p.PackageLicenseConcluded}
		}
		want := map[string]licenses{
			"image": {ownLicense, all}, "kcp@v1.2.3": {ownLicense, all}, "operator@v1.2.3": {ownLicense, all},
			"example.org/small@v1.2.3": {ownLicense, ownLicense}, "github.com/atoll-dev/atoll/api@v1.2.3": {ownLicense, ownLicense},
			"stdlib@" + runtime.Version(): {"BSD-3-Clause", "BSD-3-Clause"},
		}
		if !maps.Equal(got, want) {
			t.Errorf("licenses are %v, want %v", got, want)
		}
	})
	for _, chart := range []string{"atoll-operator", "atoll-sync-agent"} {
		t.Run("the chart "+chart+" has the image of the release", func(t *testing.T) {
			files := unpack(t, filepath.Join(first, chart+"-1.2.3.tgz"))
			digest := strings.TrimSpace(string(read(t, filepath.Join(first, "image.digest"))))
			if _, want, _ := strings.Cut(digest, "@"); !strings.Contains(files[chart+"/values.yaml"], "digest: "+want) {
				t.Errorf("values.yaml does not have %s", want)
			}
			if !strings.Contains(files[chart+"/Chart.yaml"], "\nversion: 1.2.3\n") || files[chart+"/templates/deployment.yaml"] == "" {
				t.Errorf("the chart has %d files, Chart.yaml:\n%s", len(files), files[chart+"/Chart.yaml"])
			}
		})
	}
	t.Run("definitions", func(t *testing.T) {
		for file, want := range map[string][]string{"definitions.yaml": {"rootshards.operator.kcp.io", "kubeconfigs.operator.kcp.io"}, "definitions-sync-agent.yaml": {"publishedresources.syncagent.kcp.io"}} {
			for _, name := range want {
				if text := string(read(t, filepath.Join(first, file))); !strings.Contains(text, "\n  name: "+name+"\n") {
					t.Errorf("%s, of %d bytes, does not have %s", file, len(text), name)
				}
			}
		}
	})
	t.Run("licenses are passed on", func(t *testing.T) {
		plugins := unpack(t, filepath.Join(first, "kubectl-plugins-v1.2.3-linux-arm64.tar.gz"))
		for where, text := range map[string]string{"the release": string(read(t, filepath.Join(first, "licenses.txt"))), "the plug-ins": plugins["licenses.txt"]} {
			if !strings.Contains(text, "\n\nstdlib\n\n") || !strings.Contains(text, "The Go Authors") {
				t.Errorf("%s have %d bytes of licenses", where, len(text))
			}
		}
	})
	t.Run("krew installs the plug-ins", func(t *testing.T) { checkKrew(t, first) })
	t.Run("a mirror has the same digests, and what is attached", func(t *testing.T) { checkMirror(t, first) })
	t.Run("checksums are those of the files", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "SHA256SUMS")
		cmd.Dir = first
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		if sums := string(read(t, filepath.Join(first, "SHA256SUMS"))); !strings.Contains(sums, "  image/index.json\n") {
			t.Errorf("the image has no checksums:\n%s", sums)
		}
	})
}

// checkMirror pushes the image to registries with and without an API for referrers.
func checkMirror(t *testing.T, directory string) {
	for title, options := range map[string][]registry.Option{
		"API for referrers": {registry.WithReferrersSupport(true)}, "no API for referrers": nil,
	} {
		t.Run(title, func(t *testing.T) {
			server := httptest.NewServer(registry.New(append(options, registry.Logger(log.New(io.Discard, "", 0)))...))
			defer server.Close()
			repository := strings.TrimPrefix(server.URL, "http://") + "/mirrored/atoll"
			var out bytes.Buffer
			cmd := newCommand()
			cmd.SetOut(&out)
			cmd.SetArgs([]string{"push", filepath.Join(directory, "image"), repository})
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			_, want, _ := strings.Cut(strings.TrimSpace(string(read(t, filepath.Join(directory, "image.digest")))), "@")
			if got := strings.TrimSpace(out.String()); got != repository+":v1.2.3@"+want {
				t.Errorf("pushed %s, want the digest %s", got, want)
			}
			reference, err := name.NewDigest(repository + "@" + want)
			if err != nil {
				t.Fatal(err)
			}
			index, err := remote.Index(reference)
			if err != nil {
				t.Fatal(err)
			}
			if err := validate.Index(index); err != nil {
				t.Error(err)
			}
			manifest, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			checkAttached(t, reference, mediaInToto, `"predicateType": "https://slsa.dev/provenance/v1"`)
			for _, image := range manifest.Manifests {
				checkAttached(t, reference.Context().Digest(image.Digest.String()), mediaSPDX, `"spdxVersion": "SPDX-2.3"`)
			}
		})
	}
}

// checkAttached checks that a registry has one document for an image.
func checkAttached(t *testing.T, reference name.Digest, mediaType types.MediaType, text string) {
	t.Helper()
	referrers, err := remote.Referrers(reference)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := referrers.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].ArtifactType != string(mediaType) {
		t.Fatalf("attached to %s: %+v, %v; want one %s", reference, manifest, err, mediaType)
	}
	artifact, err := remote.Image(reference.Context().Digest(manifest.Manifests[0].Digest.String()))
	if err != nil {
		t.Fatal(err)
	}
	layers, err := artifact.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers: %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	document, err := io.ReadAll(content)
	if err != nil || !strings.Contains(string(document), text) {
		t.Errorf("%s does not have %s: %v", mediaType, text, err)
	}
}

// checkLayout checks the images and the documents that refer to them.
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
