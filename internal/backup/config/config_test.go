package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLongErrorsAreCut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "termination-log")
	if err := (Result{Error: "first " + strings.Repeat("\"", 10000)}).Write(file); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	read, err := ParseResult(string(content))
	if err != nil || len(content) > maxResultBytes || !strings.HasPrefix(read.Error, "first ") {
		t.Errorf("%d bytes: %v", len(content), err)
	}
}

func TestUnknownFieldsAreErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup.yaml")
	if err := os.WriteFile(file, []byte("store: {bucket: b, recipient: [age1x]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "recipient") {
		t.Errorf("got %v", err)
	}
}
