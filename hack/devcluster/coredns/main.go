// Command coredns is CoreDNS with only the plugins that the development cluster's Corefile names. Leaving out the cloud
// plugins keeps their clients out of the build, and the rest compiles from what Kubernetes has already compiled.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	coremain.Run()
}
