package usage

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

const monthFormat = "2006-01"

// Formats of the output.
const (
	formatTable = "table"
	formatCSV   = "csv"
)

// options are the flags of "kubectl kcp usage".
type options struct {
	workspace string
	month     string
	output    string
	sum       bool
}

func (o *options) complete(now time.Time) error {
	if o.month == "" {
		o.month = now.UTC().Format(monthFormat)
	}
	if _, err := time.Parse(monthFormat, o.month); err != nil {
		return fmt.Errorf("--month: got %q, want a month such as 2026-11", o.month)
	}
	if o.output != formatTable && o.output != formatCSV {
		return fmt.Errorf("--output: got %q, want %s or %s", o.output, formatTable, formatCSV)
	}
	return nil
}

// NewCommand returns "kubectl kcp usage". The caller binds the flags of the connection.
func NewCommand(flags *connection.Flags) *cobra.Command {
	o := options{workspace: ".", output: formatTable}
	cmd := &cobra.Command{
		Use:   "usage [WORKSPACE]",
		Short: "Show what a workspace and those below it have used in a month",
		Long: `Show what a workspace and those below it have used in a month: requests by class of their verb, the duration of watches, and the bytes of
bodies. For the current month, it also shows the objects and bytes that are stored now. WORKSPACE is a name or a path, as for
"kubectl ws"; without it, it is the current workspace.

The command reads /metrics of each workspace, for which you need access to the workspace and the permission to get this path. Workspaces that
cannot be read are named, and the command fails after it has printed the others. Months are those of UTC.`,
		Example: `  # the current workspace and those below it, this month
  kubectl kcp usage

  # one line for each organisation, with all workspaces below it
  kubectl kcp usage :root --sum

  # a month for the accounting
  kubectl kcp usage :root:org --month 2026-10 -o csv > org-2026-10.csv`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("name at most one workspace: a name, or a path such as :root:org:team")
			}
			return nil
		},
		ValidArgsFunction: workspace.CompletePath(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.workspace = args[0]
			}
			if err := o.complete(time.Now()); err != nil {
				return err
			}
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			return o.run(ctx, flags)
		},
	}
	cmd.Flags().StringVar(&o.month, "month", "", "Month to show, such as 2026-11. Default: the current one")
	cmd.Flags().StringVarP(&o.output, "output", "o", o.output, "Format of the output: table or csv")
	cmd.Flags().BoolVar(&o.sum, "sum", false, "Show the workspace and its children, each with the sum of all workspaces below it")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formatTable, formatCSV}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("month", cobra.NoFileCompletions)
	return cmd
}
