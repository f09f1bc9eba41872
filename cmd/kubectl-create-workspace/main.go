// Command kubectl-create-workspace is the kubectl plugin "kubectl create workspace".
package main

import (
	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

func main() { plugin.Main("kubectl create workspace", workspace.NewCreateCommand) }
