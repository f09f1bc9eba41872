#!/usr/bin/env bash
# The retention of a locked object that minio-go has stored in versitygw cannot be read with minio-go.
#
# Versions: github.com/minio/minio-go/v7 v7.4.1 with github.com/versity/versitygw v1.8.0.
# Behaviour: the gateway takes the mode and the time of a lock with an upload, and returns both in the headers of the object. Its answer to
#   GetObjectRetention names the root element after the type of the setting, and the client accepts another name only.
# Output seen: `expected element type <Retention> but have <ObjectLockRetention>`, for an object whose header says GOVERNANCE.
# What follows: who has to work with both reads the mode and the time from the headers (StatObject), not by GetObjectRetention.
#
# The script prints what it sees, and fails if the behaviour has changed. It needs Go.
set -euo pipefail

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.org/finding

go 1.26.0

require (
	github.com/minio/minio-go/v7 v7.4.1
	github.com/versity/versitygw v1.8.0
)
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func run(ctx context.Context) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	data, sidecar := filepath.Join(here, "data"), filepath.Join(here, "attributes")
	for _, directory := range []string{data, sidecar} {
		if err := os.Mkdir(directory, 0o700); err != nil {
			return err
		}
	}
	attributes, err := meta.NewSideCar(sidecar)
	if err != nil {
		return err
	}
	backend, err := posix.New(data, attributes, posix.PosixOpts{SideCarDir: sidecar, ForceNoTmpFile: true})
	if err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		fmt.Fprintln(os.Stderr, embedgw.RunVersityGW(ctx, backend, &embedgw.Config{
			RootUserAccess: "access", RootUserSecret: "secretsecret", Region: "us-east-1", Ports: []string{address},
			MaxConnections: 10, MaxRequests: 10, MultipartMaxParts: 10000, KeepAlive: true, Quiet: true,
		}))
	}()
	client, err := minio.New(address, &minio.Options{Creds: credentials.NewStaticV4("access", "secretsecret", ""), Region: "us-east-1"})
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		err := client.MakeBucket(ctx, "bucket", minio.MakeBucketOptions{ObjectLocking: true})
		if err == nil {
			break
		}
		if attempt == 100 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	until := time.Now().Add(time.Hour).UTC()
	if _, err := client.PutObject(ctx, "bucket", "object", strings.NewReader("content"), 7, minio.PutObjectOptions{Mode: minio.Governance, RetainUntilDate: until}); err != nil {
		return err
	}
	info, err := client.StatObject(ctx, "bucket", "object", minio.StatObjectOptions{})
	if err != nil {
		return err
	}
	fmt.Printf("the headers of the object: mode %q\n", info.Metadata.Get("X-Amz-Object-Lock-Mode"))
	mode, retained, err := client.GetObjectRetention(ctx, "bucket", "object", "")
	fmt.Printf("its retention: %v, %v, %v\n", mode, retained, err)
	if err == nil || !strings.Contains(err.Error(), "ObjectLockRetention") || info.Metadata.Get("X-Amz-Object-Lock-Mode") != "GOVERNANCE" {
		return fmt.Errorf("the behaviour has changed")
	}
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
GO
go mod tidy >/dev/null 2>&1
go run .
