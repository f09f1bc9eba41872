package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLock(t *testing.T) {
	target := Target{DataDir: filepath.Join(t.TempDir(), "new", "data")}
	unlock, err := target.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := target.Lock(); err == nil || !strings.Contains(err.Error(), "another process restores into") {
		t.Errorf("a second lock: %v", err)
	}
	unlock()
	unlock, err = target.Lock()
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if left, err := os.ReadDir(filepath.Dir(target.DataDir)); err != nil || len(left) > 0 {
		t.Errorf("the lock left %v, %v", left, err)
	}
}
