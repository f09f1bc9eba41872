package repository

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestClone reads what was committed as a client does.
func TestClone(t *testing.T) {
	r := New(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "inner.yaml"), []byte("inner"), 0o600); err != nil {
		t.Fatal(err)
	}
	first := r.Write(t, "first", Files{"a/one.yaml": "1", "b/two.yaml": "2"})
	if second := r.Write(t, "folder", Folder(t, folder, "config")); second == first {
		t.Errorf("two commits have the hash %s", first)
	}
	r.Remove(t, "remove", "b")
	r.Write(t, "mistake", Files{"a/one.yaml": "wrong"})
	head := r.Revert(t)

	clone := filepath.Join(t.TempDir(), "clone")
	if out, err := exec.Command("git", "clone", "--quiet", r.URL, clone).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	for name, want := range map[string]string{"a/one.yaml": "1", "config/inner.yaml": "inner"} {
		if content, err := os.ReadFile(filepath.Join(clone, name)); err != nil || string(content) != want {
			t.Errorf("%s is %q, %v, want %q", name, content, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(clone, "b")); !os.IsNotExist(err) {
		t.Errorf("b is still there: %v", err)
	}
	if got, err := exec.Command("git", "-C", clone, "rev-parse", "HEAD").Output(); err != nil || string(got) != head+"\n" {
		t.Errorf("the clone is at %s, %v, want %s", got, err, head)
	}
}
