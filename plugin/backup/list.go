package backup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
)

// pageSize is the number of Backups that a request reads.
const pageSize = 500

func newListCommand(flags *connection.Flags) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the Backups of a namespace, the newest first",
		Long: `List the Backups of a namespace, the newest first: with the schedule that they belong to, the time of their data (UTC), the size in the store,
the number of logical clusters, the ID that a Restore needs, and the state. Backups whose objects were deleted are not in this list: "etcd backup list" reads the store.

Exit codes: 0 if the Backups were listed, also if there is none; otherwise 1.`,
		Example:           "  kubectl kcp backup list --context host -n kcp",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			host, err := open(flags)
			if err != nil {
				return err
			}
			backups, err := list(ctx, host)
			if err != nil {
				return host.explain(err, "listing the Backups")
			}
			if len(backups) == 0 {
				_, err = fmt.Fprintf(flags.ErrOut, "Namespace %q has no Backups.\n", host.namespace)
				return err
			}
			return printBackups(flags.Out, backups)
		},
	}
}

func list(ctx context.Context, host *host) ([]*operatorv1alpha1.Backup, error) {
	var out []*operatorv1alpha1.Backup
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := host.backups().List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			backup, err := decode[operatorv1alpha1.Backup](&page.Items[i])
			if err != nil {
				return nil, err
			}
			out = append(out, backup)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return out, nil
		}
	}
}

func printBackups(out io.Writer, backups []*operatorv1alpha1.Backup) error {
	slices.SortFunc(backups, func(a, b *operatorv1alpha1.Backup) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tSCHEDULE\tTAKEN\tSIZE\tLOGICAL CLUSTERS\tID\tSTATE")
	for _, backup := range backups {
		taken, size, clusters, state := "-", "-", "-", cmp.Or(backup.Status.Phase, operatorv1alpha1.BackupPhasePending)
		if state == operatorv1alpha1.BackupPhaseCompleted {
			clusters = fmt.Sprint(backup.Status.LogicalClusters)
		}
		if stopped := backup.Status.StoppedAt; stopped != nil {
			taken = stopped.UTC().Format(time.RFC3339)
		}
		if backup.Status.Size != nil {
			size = backup.Status.Size.String()
		}
		if backup.DeletionTimestamp != nil || metav1.HasAnnotation(backup.ObjectMeta, operatorv1alpha1.AnnotationRemoveBackup) {
			state = "Removing"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", backup.Name, cmp.Or(backup.Labels[operatorv1alpha1.LabelBackupSchedule], "-"), taken, size, clusters, cmp.Or(backup.Status.BackupID, "-"), state)
	}
	return table.Flush()
}
