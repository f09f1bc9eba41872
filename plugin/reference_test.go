package plugin_test

import (
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/atoll-dev/atoll/plugin"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/kcp"
	"github.com/atoll-dev/atoll/plugin/workspace"
	"github.com/atoll-dev/atoll/test/reference"
)

func TestReference(t *testing.T) {
	streams := genericiooptions.NewTestIOStreamsDiscard()
	for name, build := range map[string]func(*connection.Flags) *cobra.Command{"kcp": kcp.NewCommand, "create-workspace": workspace.NewCreateCommand} {
		t.Run(name, func(t *testing.T) {
			reference.Flags(t, "../docs/reference/flags", "kubectl-"+name, plugin.NewRootCommand("kubectl "+name, connection.NewFlags(streams), build))
		})
	}
}
