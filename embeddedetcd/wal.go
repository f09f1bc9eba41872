package embeddedetcd

import (
	"fmt"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// setWALSize sets the size to which etcd preallocates segments of its write-ahead log. etcd keeps it in a package
// variable that is read for as long as the process runs, so it is not put back. 0 keeps etcd's own.
func setWALSize(bytes int64) error {
	if bytes < 0 {
		return fmt.Errorf("--embedded-etcd-wal-size-bytes: got %d, want 0 or more", bytes)
	}
	if bytes > 0 {
		wal.SegmentSizeBytes = bytes
	}
	return nil
}
