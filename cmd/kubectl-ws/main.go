// Command kubectl-ws is the kubectl plugin "kubectl ws", short for "kubectl kcp workspace".
package main

import (
	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

func main() { plugin.Main("kubectl ws", workspace.NewCommand) }
