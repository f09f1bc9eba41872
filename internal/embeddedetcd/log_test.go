package embeddedetcd

import (
	"os"
	"path/filepath"
	"testing"
)

// Log messages of a healthy start would hide messages about problems.
func TestStartLogsNothing(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	stderr := os.Stderr
	os.Stderr = log
	defer func() { os.Stderr = stderr }()
	server, err := Start(t.Context(), Config{Directory: filepath.Join(t.TempDir(), "etcd"), UnsafeNoFsync: true, WALSizeBytes: 5000})
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	if text, err := os.ReadFile(name); err != nil || len(text) > 0 {
		t.Errorf("a start logs %q, %v", text, err)
	}
}
