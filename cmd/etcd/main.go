// Command etcd is etcd 3.6, built from its module, so that the image can run the store of a RootShard that names
// none of its own.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/atoll-dev/atoll/shardserver/headroom"
)

// room is less than that of a shard: etcd holds little in its heap, and would collect garbage five times a second while
// workspaces are made, which costs it a twelfth of its processor time.
var room = headroom.Room{Least: 64 << 20, Most: 256 << 20}

func main() {
	headroom.Keep(room)
	etcdmain.Main(os.Args)
}
