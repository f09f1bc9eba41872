package embeddedetcd

import (
	"fmt"
	"sync"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// walSize ensures that etcd's segment size is written only before the first server of the process starts.
var walSize struct {
	sync.Mutex
	decided bool
}

// SetWALSize sets the size to which etcd preallocates segments of its write-ahead log; 0 keeps the current one. etcd stores it in a
// package variable that every running server reads, so it is never reset, and a size other than that of the first server is an error.
// Start calls SetWALSize; code that starts etcd in another way must call it before.
func SetWALSize(bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("--embedded-etcd-wal-size-bytes: got %d, want 0 or more", bytes)
	}
	walSize.Lock()
	defer walSize.Unlock()
	if bytes > 0 && bytes != wal.SegmentSizeBytes {
		if walSize.decided {
			return fmt.Errorf("--embedded-etcd-wal-size-bytes: got %d, but embedded etcds of one process share a size, which is %d", bytes, wal.SegmentSizeBytes)
		}
		wal.SegmentSizeBytes = bytes
	}
	walSize.decided = true
	return nil
}
