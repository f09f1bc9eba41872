#!/usr/bin/env bash
# A stream of keys that its reader leaves before the end keeps a goroutine of etcd's client, also after its context has ended.
#
# Versions: go.etcd.io/etcd/client/v3 and go.etcd.io/etcd/server/v3 v3.7.3, which are the first with this request.
# Behaviour: GetStream returns a channel, and a goroutine of the client sends each part of the answer to it. The goroutine does not look at the
#   context while it sends: if nobody receives any more, it waits for ever, with the parts that it has. Watch, the other
#   channel of the client, ends with its context.
# Output seen: `left early: 20 of 20 goroutines remain after their contexts have ended`, and 0 for readers that receive the rest after they have
#   cancelled the context.
# What follows: who leaves such a stream cancels its context, and then receives until the channel is closed.
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
)
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

const readers = 20

// readFirst reads the first part of all keys, and leaves.
func readFirst(client *clientv3.Client, drain bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	parts, err := client.GetStream(ctx, "key-", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	first := <-parts
	if first.Err() != nil || len(first.Kvs) == 0 {
		return fmt.Errorf("first part: %d keys, %v", len(first.Kvs), first.Err())
	}
	cancel()
	if drain {
		for range parts {
		}
	}
	return nil
}

// streams returns the number of goroutines that send parts.
func streams() int {
	stacks := make([]byte, 8<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), ").GetStream.func1(")
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
	for i := range 2000 {
		if _, err := client.Put(context.Background(), fmt.Sprintf("key-%04d", i), "value"); err != nil {
			return err
		}
	}
	for _, drain := range []bool{true, false} {
		for range readers {
			if err := readFirst(client, drain); err != nil {
				return err
			}
		}
		time.Sleep(3 * time.Second) // many times what a goroutine needs to end
		remain, name := streams(), map[bool]string{true: "left early, and received the rest", false: "left early"}[drain]
		fmt.Printf("%s: %d of %d goroutines remain after their contexts have ended\n", name, remain, readers)
		if drain != (remain == 0) {
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
