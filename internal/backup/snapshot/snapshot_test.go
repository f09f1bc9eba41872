package snapshot

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	database := bytes.Repeat([]byte("0123456789abcdef"), 2*diskSector/16)
	sum := sha256.Sum256(database)
	whole := append(bytes.Clone(database), sum[:]...)
	flipped := bytes.Clone(whole)
	flipped[100] ^= 1
	for name, tc := range map[string]struct {
		content []byte
		want    string
	}{
		"a snapshot with its hash is accepted":            {whole, ""},
		"one without a hash is truncated":                 {database, "it is truncated"},
		"one that ends early is truncated":                {whole[:len(whole)-1], "it is truncated"},
		"one that lacks a sector has another hash":        {whole[diskSector:], "do not have the hash"},
		"a flipped bit gives another hash":                {flipped, "do not have the hash"},
		"nothing is no snapshot":                          {nil, "it is truncated"},
		"a hash of nothing is that of an empty etcd":      {hashOfNothing(), ""},
		"what is shorter than a hash is no snapshot":      {[]byte("short"), "it is truncated"},
		"zeroes as long as a snapshot do not have theirs": {make([]byte, len(whole)), "do not have the hash"},
	} {
		t.Run(name, func(t *testing.T) {
			// Parts of any size give the same result.
			for _, size := range []int{1, 7, 31, 32, 33, 4096} {
				check := NewCheck()
				for rest := tc.content; len(rest) > 0; rest = rest[min(size, len(rest)):] {
					if n, err := check.Write(rest[:min(size, len(rest))]); n == 0 || err != nil {
						t.Fatal(n, err)
					}
				}
				err := check.Verify()
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("in parts of %d bytes: got %v, want %q", size, err, tc.want)
				}
			}
		})
	}
}

func hashOfNothing() []byte {
	sum := sha256.Sum256(nil)
	return sum[:]
}
