package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
	"github.com/atoll-dev/atoll/plugin/workspace"
)

// Formats of the output.
const (
	formatTable = "table"
	formatJSON  = "json"
)

// options are the flags of "kubectl kcp audit".
type options struct {
	workspace string
	limit     int
	since     time.Duration
	output    string
}

func (o *options) validate() error {
	if o.limit < 1 {
		return fmt.Errorf("--limit: got %d, want a number of events, at least 1", o.limit)
	}
	if o.since < 0 {
		return fmt.Errorf("--since: got %s, want a duration such as 1h, or 0 for all events", o.since)
	}
	if o.output != formatTable && o.output != formatJSON {
		return fmt.Errorf("--output: got %q, want %s or %s", o.output, formatTable, formatJSON)
	}
	return nil
}

// query returns the parameters of the request.
func (o *options) query(now time.Time) url.Values {
	query := url.Values{"limit": {strconv.Itoa(o.limit)}}
	if o.since > 0 {
		query.Set("since", now.Add(-o.since).UTC().Format(time.RFC3339Nano))
	}
	return query
}

// NewCommand returns "kubectl kcp audit". The caller binds the flags of the connection.
func NewCommand(flags *connection.Flags) *cobra.Command {
	o := options{workspace: ".", limit: 100, output: formatTable}
	cmd := &cobra.Command{
		Use:   "audit [WORKSPACE]",
		Short: "Show who has changed what in a workspace, and whose requests were refused",
		Long: `Show the latest audit events of a workspace, the newest last: changes, and refused or failed requests. WORKSPACE is a name or a path, as for
"kubectl ws"; without it, it is the current workspace.

The command reads /audit of the workspace, for which you need access to the workspace and the permission to get this path. The shard keeps the
events in memory: those before its last start are gone, and with several replicas of a shard each has the requests that it has served.`,
		Example: `  # the current workspace
  kubectl kcp audit

  # the last hour of another one, with all that the events have
  kubectl kcp audit :root:org:team --since 1h --limit 1000 -o json`,
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
			if err := o.validate(); err != nil {
				return err
			}
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			return o.run(ctx, flags)
		},
	}
	cmd.Flags().IntVar(&o.limit, "limit", o.limit, "Number of events to show, at most 10000")
	cmd.Flags().DurationVar(&o.since, "since", 0, "Show events of this time before now only, such as 1h. Default: all")
	cmd.Flags().StringVarP(&o.output, "output", "o", o.output, "Format of the output: table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{formatTable, formatJSON}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("since", cobra.NoFileCompletions)
	return cmd
}

func (o *options) run(ctx context.Context, flags *connection.Flags) error {
	session, err := flags.Open()
	if err != nil {
		return err
	}
	installation, path, err := workspace.Resolve(ctx, session, o.workspace)
	if err != nil {
		return err
	}
	content, err := installation.AuditEvents(ctx, path, o.query(time.Now()))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("the server of workspace %q keeps no audit events: it is older, or configured so", path)
	case err != nil:
		return fmt.Errorf("reading the audit events of workspace %q: %w", path, err)
	}
	var list auditv1.EventList
	if err := json.Unmarshal(content, &list); err != nil || list.Kind != "EventList" {
		return fmt.Errorf("reading the audit events of workspace %q: its server answers something else", path)
	}
	if o.output == formatJSON {
		encoder := json.NewEncoder(flags.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	}
	return printTable(flags.Out, list.Items)
}
