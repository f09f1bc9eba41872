package cluster

import (
	"fmt"
	"os"
	"syscall"
)

// lockFile is held while a cluster comes up or goes down. It exists only while somebody holds it or waits for it.
const lockFile = "/run/atoll-devcluster.lock"

// lock waits until nobody else brings a cluster up or down on this machine.
func lock() (unlock func(), err error) {
	for {
		file, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("waiting for another devcluster to finish: %w", err)
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			file.Close()
			return nil, fmt.Errorf("waiting for another devcluster to finish: %w", err)
		}
		if holdsPath(file) {
			return func() {
				os.Remove(lockFile)
				file.Close()
			}, nil
		}
		file.Close() // the one who held it removed it while we waited: the lock is another file now
	}
}

func holdsPath(file *os.File) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(lockFile)
	return err == nil && os.SameFile(held, now)
}
