package programs

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Credentials of the account of an S3 server.
const (
	S3AccessKey = "installation"
	S3SecretKey = "correct-horse-battery-staple"
)

// S3 is a running S3 server. Its buckets are folders of Objects, and its objects are files in them.
type S3 struct{ Address, Objects string }

// StartS3 runs the program of test/s3server with a bucket, and returns when it accepts connections.
func StartS3(t testing.TB, program, bucket string, args ...string) *S3 {
	t.Helper()
	directory := t.TempDir()
	s := &S3{FreeAddress(t), filepath.Join(directory, "objects")}
	metadata := filepath.Join(directory, "metadata")
	for _, folder := range []string{metadata, filepath.Join(s.Objects, bucket)} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	process := Start(t, directory, program, append([]string{
		"--address", s.Address, "--directory", s.Objects, "--metadata-directory", metadata, "--access-key", S3AccessKey, "--secret-key", S3SecretKey,
	}, args...)...)
	for {
		conn, err := net.DialTimeout("tcp", s.Address, time.Second)
		if err == nil {
			conn.Close()
			return s
		}
		select {
		case <-process.Exited():
			t.Fatalf("the S3 server ended: %s", process.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
