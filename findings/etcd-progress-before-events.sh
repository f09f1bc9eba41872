#!/usr/bin/env bash
# A new etcd watch is told that it is complete up to a revision, before it has got the change of that revision.
#
# Versions: go.etcd.io/etcd/client/v3 and go.etcd.io/etcd/server/v3 v3.7.3.
# Behaviour: the watches of one client share a gRPC stream. The client passes a report of progress on to each watch of the stream, and the
#   server sends the creation of a watch and reports of progress in any order. A report from before a watch exists can therefore be its first
#   response. Its revision is at least the one from which the watch begins, though the changes since then follow later. A watch with
#   a stream of its own (one with other gRPC metadata in its context) gets the changes first.
# Output seen: `shared stream true: of 1 watches, 1 were told that they are complete before their first event`, and none of about a hundred
#   with a stream each.
# What follows: who requests progress to find out whether a watch has caught up gives the watch a stream of its own.
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
	go.etcd.io/etcd/client/v3 v3.7.3
	go.etcd.io/etcd/server/v3 v3.7.3
	google.golang.org/grpc v1.83.2
)
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc/metadata"
)

// attempts opens watches one after another, each from a revision whose change etcd has to send, while reports of progress are requested
// for the stream. It counts those that are told to be complete up to a revision whose change they have not got.
func attempts(ctx context.Context, client *clientv3.Client, shared bool, limit time.Duration) (watches, early int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	client.Watch(ctx, "other") // keeps the shared stream open
	go func() {
		for ctx.Err() == nil {
			_ = client.RequestProgress(ctx)
		}
	}()
	for ; ctx.Err() == nil && (early == 0 || !shared); watches++ {
		put, err := client.Put(ctx, "key", fmt.Sprint(watches))
		if err != nil && ctx.Err() == nil {
			return 0, 0, err
		}
		if err != nil {
			break
		}
		one, stop := context.WithCancel(ctx)
		own := one
		if !shared {
			own = metadata.AppendToOutgoingContext(one, "watch", fmt.Sprint(watches))
		}
		events := client.Watch(own, "key", clientv3.WithRev(put.Header.Revision))
		if !shared {
			go func() { _ = client.RequestProgress(own) }()
		}
		for response := range events {
			if response.IsProgressNotify() && response.Header.Revision >= put.Header.Revision {
				early++
				break
			}
			if len(response.Events) > 0 {
				break
			}
		}
		stop()
	}
	return watches, early, nil
}

func run() error {
	config := embed.NewConfig()
	config.Dir, config.LogLevel = "data", "fatal"
	local := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{local}, []url.URL{local}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{local}, []url.URL{local}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer server.Close()
	<-server.Server.ReadyNotify()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Clients[0].Addr().String()}})
	if err != nil {
		return err
	}
	defer client.Close()
	for _, shared := range []bool{true, false} {
		watches, early, err := attempts(context.Background(), client, shared, 20*time.Second)
		if err != nil {
			return err
		}
		fmt.Printf("shared stream %v: of %d watches, %d were told that they are complete before their first event\n", shared, watches, early)
		if shared != (early > 0) {
			return fmt.Errorf("the behaviour has changed")
		}
	}
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
GO
go mod tidy >/dev/null 2>&1
go run .
