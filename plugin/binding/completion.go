package binding

import (
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// completeBinding completes the name of an APIBinding of the workspace that the command acts on.
func completeBinding(flags *connection.Flags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		installation, workspace, err := openTarget(flags)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c := completer{cmd: cmd, installation: installation}
		return c.completeNames(workspace, connection.APIBindings, toComplete, "", ""), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeExport completes the last name of PATH:EXPORT: workspaces on the way, and exports.
func completeExport(flags *connection.Flags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		if len(args) > 0 {
			return nil, directive
		}
		at := strings.LastIndex(toComplete, ":")
		if at < 0 {
			return []cobra.Completion{logicalcluster.Root.String() + ":"}, directive
		}
		path, err := logicalcluster.ParsePath(strings.TrimPrefix(toComplete[:at], ":"))
		if err != nil {
			return nil, directive
		}
		installation, _, err := openTarget(flags)
		if err != nil {
			return nil, directive
		}
		c := completer{cmd: cmd, installation: installation}
		typed, prefix := toComplete[:at+1], toComplete[at+1:]
		return append(
			c.completeNames(path, connection.Workspaces, prefix, typed, ":"),
			c.completeNames(path, connection.APIExports, prefix, typed, "")...,
		), directive
	}
}

type completer struct {
	cmd          *cobra.Command
	installation *connection.Installation
}

// completeNames completes the names of objects with the prefix that the user typed. It returns no completions for resources
// that cannot be listed.
func (c completer) completeNames(workspace logicalcluster.Path, resource schema.GroupVersionResource, prefix, before, after string) []cobra.Completion {
	objects, err := c.installation.List(c.cmd.Context(), workspace, resource)
	if err != nil {
		return nil
	}
	var names []cobra.Completion
	for i := range objects {
		if name := objects[i].GetName(); strings.HasPrefix(name, prefix) {
			names = append(names, before+name+after)
		}
	}
	return names
}
