package snapshot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// Lock keeps other processes from restoring into the same directory: two pods of a Job may run at the same time on one node. It creates the
// directory around. The lock ends with the process, or with the function that it returns.
func (t Target) Lock() (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(t.DataDir), 0o700); err != nil {
		return nil, err
	}
	busy := fmt.Errorf("another process restores into %s: wait for its end", t.DataDir)
	file, err := fileutil.TryLockFile(t.beside(".lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, fileutil.ErrLocked):
		return nil, busy
	case err != nil:
		return nil, fmt.Errorf("locking %s: %w", t.DataDir, err)
	}
	// The previous owner of the lock removes the file: then this lock protects nothing.
	locked, lockedErr := file.Stat()
	current, currentErr := os.Stat(file.Name())
	if lockedErr != nil || currentErr != nil || !os.SameFile(locked, current) {
		return nil, errors.Join(busy, file.Close())
	}
	return func() {
		_ = os.Remove(file.Name())
		_ = file.Close() // nothing was written
	}, nil
}
