package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// The last stage of the Dockerfile creates an image with the same configuration as the image of a release.
func TestDockerfile(t *testing.T) {
	binaries := buildPrograms(t)
	r := release{version: "$VERSION", commit: "$GIT_COMMIT", root: "../..", binaries: binaries, servers: []string{"kcp", "operator"}, platforms: []v1.Platform{{OS: "linux", Architecture: "amd64"}}}
	images, err := r.buildImages()
	if err != nil {
		t.Fatal(err)
	}
	file, err := images[0].image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := file.Config
	want.Labels["org.opencontainers.image.created"] = "$CREATED"
	got, err := lastStage(string(read(t, "../../Dockerfile")))
	if err != nil {
		t.Fatal(err)
	}
	if got.User != want.User || got.WorkingDir != want.WorkingDir || !slices.Equal(got.Env, want.Env) || !slices.Equal(got.Entrypoint, want.Entrypoint) || !slices.Equal(got.Cmd, want.Cmd) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !maps.Equal(got.Labels, want.Labels) {
		t.Errorf("labels are %v, want %v", got.Labels, want.Labels)
	}
}

var (
	instruction = regexp.MustCompile(`^([A-Z]+) +(.+)$`)
	assignment  = regexp.MustCompile(`^([\w.]+)="?([^"]*)"?$`)
)

// lastStage reads the configuration that the last stage of a Dockerfile creates. It supports the instructions that the Dockerfile uses.
func lastStage(text string) (v1.Config, error) {
	config := v1.Config{Labels: map[string]string{}}
	stage := text[strings.LastIndex(text, "\nFROM ")+1:]
	for line := range strings.Lines(stage) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		match := instruction.FindStringSubmatch(line)
		if match == nil {
			return config, fmt.Errorf("not an instruction: %s", line)
		}
		pair := assignment.FindStringSubmatch(match[2])
		switch name := match[1]; {
		case name == "ARG", line == "FROM scratch", line == "COPY --from=build /src/bin/image-files /":
		case name == "USER":
			config.User = match[2]
		case name == "WORKDIR":
			config.WorkingDir = match[2]
		case name == "ENV" && pair != nil:
			config.Env = append(config.Env, pair[1]+"="+pair[2])
		case name == "LABEL" && pair != nil:
			config.Labels[pair[1]] = pair[2]
		default:
			return config, fmt.Errorf("the test does not know this instruction: %s", line)
		}
	}
	return config, nil
}

// The licenses for the tar of an image are the licenses of the image's files.
func TestLicenses(t *testing.T) {
	binaries := buildPrograms(t)
	written := map[string]string{}
	for _, command := range []string{"licenses", "files"} {
		cmd := newCommand()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{command, "--root=../..", filepath.Join(binaries, "linux_amd64", "kcp")})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		written[command] = out.String()
	}
	if !strings.Contains(written["licenses"], "The Go Authors") || !strings.Contains(written["files"], written["licenses"]) {
		t.Errorf("%d bytes of licenses are not in the files of the image", len(written["licenses"]))
	}
}

// The files for the Dockerfile are the files of the image of a release.
func TestFiles(t *testing.T) {
	binaries := buildPrograms(t)
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"files", "--root=../..", filepath.Join(binaries, "linux_amd64", "kcp"), filepath.Join(binaries, "linux_amd64", "operator")})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	modes := map[string]int64{}
	for files := tar.NewReader(&out); ; {
		header, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		modes[header.Name] = header.Mode
	}
	want := map[string]int64{"etc": 0o755, "tmp": 0o1777, "etc/group": 0o644, "etc/passwd": 0o644, "licenses.txt": 0o644, "kcp": 0o755, "operator": 0o755}
	if !maps.Equal(modes, want) {
		t.Errorf("got %v, want %v", modes, want)
	}
}
