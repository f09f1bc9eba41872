package cacheserver_test

import (
	"fmt"
	"os"
	"testing"
)

// mainTB lets TestMain start servers with the helpers of tests.
type mainTB struct {
	testing.TB
	cleanups    []func()
	directories []string
}

func (*mainTB) Helper() {}

func (t *mainTB) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

func (t *mainTB) TempDir() string {
	directory, err := os.MkdirTemp("", "cacheserver")
	if err != nil {
		panic(err)
	}
	t.directories = append(t.directories, directory)
	return directory
}

func (*mainTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (*mainTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (*mainTB) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (t *mainTB) runCleanups() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
	for _, directory := range t.directories {
		_ = os.RemoveAll(directory)
	}
}
