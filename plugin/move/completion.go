package move

import (
	"strings"

	"github.com/spf13/cobra"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// completeShard completes the name of a shard with those that the user can see in root.
func completeShard(flags *connection.Flags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp
		session, err := flags.Open()
		if err != nil {
			return nil, directive
		}
		installation, err := session.Installation()
		if err != nil {
			return nil, directive
		}
		shards, err := installation.List(cmd.Context(), logicalcluster.Root.Path(), corev1alpha1.SchemeGroupVersion.WithResource("shards"))
		if err != nil {
			return nil, directive
		}
		var names []cobra.Completion
		for i := range shards {
			if name := shards[i].GetName(); strings.HasPrefix(name, toComplete) {
				names = append(names, name)
			}
		}
		return names, directive
	}
}
