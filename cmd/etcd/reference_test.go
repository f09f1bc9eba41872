package main

import (
	"testing"

	"github.com/atoll-dev/atoll/test/reference"
)

func TestReference(t *testing.T) {
	reference.Flags(t, "../../docs/reference/flags", "etcd-backup", newBackupCommand())
}
