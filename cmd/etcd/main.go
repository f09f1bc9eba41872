// Command etcd is etcd 3.6, built from its module, so that the image can run the store of a RootShard that names
// none of its own.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
