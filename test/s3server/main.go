// Command s3server is the S3 server of tests of backups: versitygw over a directory, with one account. Buckets are folders of the
// directory, and objects are files in them, so that a test can damage an object where no client can.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3err"
	"github.com/versity/versitygw/s3response"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "s3server:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("address", "", "host:port to listen on")
	directory := flag.String("directory", "", "Directory with a folder for each bucket.")
	metadata := flag.String("metadata-directory", "", "Directory for attributes of objects.")
	access := flag.String("access-key", "", "Access key ID of the account.")
	secret := flag.String("secret-key", "", "Secret access key of the account.")
	cert := flag.String("tls-cert-file", "", "Serving certificate. Default: plain HTTP.")
	key := flag.String("tls-private-key-file", "", "Key of the certificate.")
	space := flag.Int64("space", 0, "Bytes that are accepted in all, as if the disk was full after them. 0 is no limit.")
	flag.Parse()
	// Not in extended attributes, which not every file system of a machine that tests has.
	attributes, err := meta.NewSideCar(*metadata)
	if err != nil {
		return err
	}
	posixBackend, err := posix.New(*directory, attributes, posix.PosixOpts{SideCarDir: *metadata, ForceNoTmpFile: true})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return embedgw.RunVersityGW(ctx, &disk{Posix: posixBackend, space: *space}, &embedgw.Config{
		RootUserAccess: *access, RootUserSecret: *secret, Region: "us-east-1", Ports: []string{*address},
		MaxConnections: 100, MaxRequests: 100, MultipartMaxParts: 10000, KeepAlive: true, Quiet: true, CertFile: *cert, KeyFile: *key,
	})
}

// disk is a backend of limited size.
type disk struct {
	*posix.Posix
	space int64
	used  atomic.Int64
}

// hasSpace counts a write, and reports whether there is space for it. Without, it reads the content first, as a server whose disk becomes full
// does: after an answer before the end of a request, the connection is closed, and its client may not see the answer.
func (d *disk) hasSpace(length *int64, content io.Reader) bool {
	if d.space == 0 {
		return true
	}
	if length != nil {
		d.used.Add(*length)
	}
	if d.used.Load() <= d.space {
		return true
	}
	if content != nil {
		_, _ = io.Copy(io.Discard, content) // whatever it is, it is refused
	}
	return false
}

func (d *disk) PutObject(ctx context.Context, input s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	if !d.hasSpace(input.ContentLength, input.Body) {
		return s3response.PutObjectOutput{}, s3err.GetAPIError(s3err.ErrQuotaExceeded)
	}
	return d.Posix.PutObject(ctx, input)
}

func (d *disk) UploadPart(ctx context.Context, input *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	if !d.hasSpace(input.ContentLength, input.Body) {
		return nil, s3err.GetAPIError(s3err.ErrQuotaExceeded)
	}
	return d.Posix.UploadPart(ctx, input)
}
