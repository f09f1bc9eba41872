// Command kubectl-kcp is the kubectl plugin "kubectl kcp", which combines all commands for workspaces and the APIs that
// they share.
package main

import (
	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/kcp"
)

func main() { plugin.Main("kubectl kcp", kcp.NewCommand) }
