package quickstart

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

// The available scenarios.
const (
	providerScenario   = "api-provider"
	workspacesScenario = "workspaces"
)

// options are the flags of "kubectl kcp quickstart".
type options struct {
	scenario, prefix            string
	cleanup, enter, withSamples bool
	timeout                     time.Duration
	tree                        treeOptions
}

// NewCommand returns "kubectl kcp quickstart". The caller binds the flags of the connection.
func NewCommand(flags *connection.Flags) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "quickstart",
		Short: "Create an example in an installation",
		Long: `Create an example in an installation, below one new organization in root:

  api-provider   a workspace that exports an API, and another one that has bound it
  workspaces     a random tree of workspaces

Repeat it to complete what is missing; --cleanup takes everything away.`,
		Example: `  # an API, its provider and its consumer, with an object of it
  kubectl kcp quickstart --with-samples --enter

  # two hundred workspaces, the same ones each time
  kubectl kcp quickstart --scenario workspaces --tree-count 200 --tree-depth 5 --tree-seed 1

  # take it away
  kubectl kcp quickstart --cleanup`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), flags)
		},
	}
	cmd.Flags().StringVar(&o.scenario, "scenario", providerScenario, "What to set up: api-provider or workspaces")
	cmd.Flags().StringVar(&o.prefix, "name-prefix", "quickstart", "First part of the names of all workspaces")
	cmd.Flags().BoolVar(&o.cleanup, "cleanup", false, "Delete what was set up with this prefix")
	cmd.Flags().BoolVar(&o.enter, "enter", false, "Enter the workspace where the scenario ends")
	cmd.Flags().BoolVar(&o.withSamples, "with-samples", false, "Create objects in the workspaces")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 10*time.Minute, "How long everything together may take")
	cmd.Flags().IntVar(&o.tree.depth, "tree-depth", 3, "Levels of the tree below the organization")
	cmd.Flags().IntVar(&o.tree.count, "tree-count", 50, "Workspaces in the tree")
	cmd.Flags().Int64Var(&o.tree.seed, "tree-seed", 0, "The same number gives the same tree. 0 takes the clock")
	_ = cmd.RegisterFlagCompletionFunc("scenario",
		cobra.FixedCompletions([]cobra.Completion{providerScenario, workspacesScenario}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *options) validate() error {
	if o.scenario != providerScenario && o.scenario != workspacesScenario {
		return fmt.Errorf("unknown --scenario %q; there are %s and %s", o.scenario, providerScenario, workspacesScenario)
	}
	if problems := validation.IsDNS1123Label(o.prefix); len(problems) > 0 {
		return fmt.Errorf("invalid --name-prefix %q: %s", o.prefix, problems[0])
	}
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout must be positive, not %s", o.timeout)
	}
	return o.tree.validate()
}

func (o *options) run(ctx context.Context, flags *connection.Flags) error {
	session, err := flags.Open()
	if err != nil {
		return err
	}
	installation, err := session.Installation()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	root := logicalcluster.Root.Path()
	if _, err := installation.IsReachable(root); err != nil {
		return fmt.Errorf("%w\n\nNo server of kcp answers at %s. Start one with \"kcp start\" and use its kubeconfig:\n  export KUBECONFIG=.kcp/admin.kubeconfig",
			err, installation.URLFor(root))
	}
	s := &setup{options: o, installation: installation, out: flags.Out}
	if o.cleanup {
		return s.cleanUp(ctx)
	}
	end, err := s.run(ctx)
	if err != nil || !o.enter {
		return err
	}
	return workspace.Enter(ctx, flags, end)
}
