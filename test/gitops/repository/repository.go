// Package repository serves a git repository over HTTP to tests of programs that apply manifests from git. Git itself makes the commits
// and answers the requests.
package repository

import (
	"bytes"
	"io/fs"
	"maps"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/test/debian"
)

// Branch is the only branch.
const Branch = "main"

// Files are contents by slash-separated path.
type Files map[string]string

// Repository is a repository and a working tree of it.
type Repository struct {
	// URL is the address from which it is cloned.
	URL string

	git, tree string
}

// New creates a repository without a commit, and serves it until the end of the test.
func New(t testing.TB) *Repository {
	t.Helper()
	r := &Repository{git: debian.Program(t, "git", "git"), tree: t.TempDir()}
	r.run(t, "init", "--quiet", "--initial-branch", Branch)
	root := t.TempDir()
	bare := filepath.Join(root, "platform.git")
	r.run(t, "init", "--quiet", "--bare", "--initial-branch", Branch, bare)
	r.run(t, "remote", "add", "origin", bare)
	server := httptest.NewServer(&cgi.Handler{
		Path: filepath.Join(r.run(t, "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1"},
	})
	t.Cleanup(server.Close)
	r.URL = server.URL + "/platform.git"
	return r
}

// Write commits files in addition to the existing ones, publishes the commit and returns its hash.
func (r *Repository) Write(t testing.TB, message string, files Files) string {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(r.tree, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(files[name]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r.commit(t, message)
}

// Remove commits the removal of files or folders, publishes the commit and returns its hash.
func (r *Repository) Remove(t testing.TB, message string, paths ...string) string {
	t.Helper()
	r.run(t, append([]string{"rm", "-r", "--quiet", "--"}, paths...)...)
	return r.commit(t, message)
}

// Revert commits the inverse of the newest commit, publishes it and returns its hash.
func (r *Repository) Revert(t testing.TB) string {
	t.Helper()
	r.run(t, "revert", "--no-edit", "HEAD")
	return r.push(t)
}

func (r *Repository) commit(t testing.TB, message string) string {
	t.Helper()
	r.run(t, "add", "--all")
	r.run(t, "commit", "--quiet", "--message", message)
	return r.push(t)
}

func (r *Repository) push(t testing.TB) string {
	t.Helper()
	r.run(t, "push", "--quiet", "origin", Branch)
	return r.run(t, "rev-parse", "HEAD")
}

// run runs git in the working tree, without the configuration of the user, and returns its output.
func (r *Repository) run(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command(r.git, args...)
	cmd.Dir = r.tree
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=platform", "GIT_AUTHOR_EMAIL=platform@example.com", "GIT_COMMITTER_NAME=platform", "GIT_COMMITTER_EMAIL=platform@example.com")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// Folder returns the files of a directory of this machine, to be written below a path of the repository.
func Folder(t testing.TB, directory, below string) Files {
	t.Helper()
	files := Files{}
	err := fs.WalkDir(os.DirFS(directory), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(filepath.Join(directory, name))
		files[below+"/"+name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
