// Command etcd is etcd 3.7, built from its module, so that the image can run the store of a RootShard that configures
// no other.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"

	"github.com/atoll-dev/atoll/internal/gomemlimit"
)

func main() {
	gomemlimit.Set()
	etcdmain.Main(os.Args)
}
