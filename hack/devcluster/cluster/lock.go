package cluster

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile is locked while a cluster is started or stopped. It exists only while a process holds the lock or waits for
// it.
const lockFile = "/run/atoll-devcluster.lock"

// acquireLock waits until no other process starts or stops a cluster on this machine.
func acquireLock() (unlock func(), err error) {
	for {
		file, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("waiting for another devcluster to finish: %w", err)
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			file.Close()
			return nil, fmt.Errorf("waiting for another devcluster to finish: %w", err)
		}
		if isCurrentLockFile(file) {
			return func() {
				os.Remove(lockFile)
				file.Close()
			}, nil
		}
		file.Close() // the previous holder removed this file: the lock is another file now
	}
}

func isCurrentLockFile(file *os.File) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	current, err := os.Stat(lockFile)
	return err == nil && os.SameFile(held, current)
}
