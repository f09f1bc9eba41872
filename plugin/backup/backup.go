package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
)

// maxPrefix is the length of the name of a RootShard in the name of a Backup, which has 50 characters with the five that the server adds.
const maxPrefix = 44

// NewCommand returns "kubectl kcp backup". The caller binds the flags of the connection.
func NewCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Create and list the Backups of an installation",
		Long: `Create and list the Backups of an installation. The commands use the namespace of the RootShard in the cluster with the operator, not
a workspace: select it with --context and --namespace. A Backup has all shards, and single workspaces can be restored from it.`,
		Example: "  kubectl kcp backup create --context host -n kcp --root-shard root --store offsite --wait\n  kubectl kcp backup list --context host -n kcp",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBackupCreateCommand(flags), newListCommand(flags))
	return cmd
}

// backupOptions are the flags of "kubectl kcp backup create".
type backupOptions struct {
	waitOptions

	name, rootShard, store string
}

func (o *backupOptions) validate() error {
	switch {
	case o.rootShard == "":
		return errors.New("--root-shard is required: the name of the RootShard to save")
	case o.store == "":
		return errors.New("--store is required: the name of the BackupStore to save to")
	}
	return errors.Join(checkName("Backup", o.name), follow.ValidateTimeout(o.wait, o.timeout))
}

func newBackupCreateCommand(flags *connection.Flags) *cobra.Command {
	var o backupOptions
	cmd := &cobra.Command{
		Use:   "create [NAME] --root-shard ROOTSHARD --store BACKUPSTORE",
		Short: "Save an installation to a BackupStore",
		Long: `Save an installation to a BackupStore, by a Backup of that name, or of one that is made from the name of the RootShard. The operator
does the work: the command can be stopped with ctrl-C.

With --wait, the last lines are the ID of the backup and the digest of its manifest. Keep them with the private key, outside of the cluster.

Exit codes: 0 if the Backup was created and, with --wait, is completed; otherwise 1.`,
		Example: `  # save, and follow
  kubectl kcp backup create before-upgrade --context host -n kcp --root-shard root --store offsite --wait`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.name = args[0]
			}
			if err := o.validate(); err != nil {
				return err
			}
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			return o.run(ctx, flags)
		},
	}
	cmd.Flags().StringVar(&o.rootShard, "root-shard", "", "Name of the RootShard to save")
	cmd.Flags().StringVar(&o.store, "store", "", "Name of the BackupStore to save to")
	o.bind(cmd)
	return cmd
}

func (o *backupOptions) run(ctx context.Context, flags *connection.Flags) error {
	host, err := open(flags)
	if err != nil {
		return err
	}
	created, err := create(ctx, host.backups(), "Backup", o.backup(host.namespace))
	if err != nil {
		return host.explain(err, "creating the Backup")
	}
	fmt.Fprintf(flags.Out, "Created Backup %q in namespace %q.\n", created.Name, created.Namespace)
	if !o.wait {
		return nil
	}
	saved := operatorv1alpha1.BackupStatus{}
	err = until(ctx, flags, o.waitOptions, host.backups(), followed{"Backup", created.Name, created.UID}, string(operatorv1alpha1.BackupPhaseCompleted), string(operatorv1alpha1.BackupPhaseFailed),
		func(b *operatorv1alpha1.Backup) (types.UID, string, []metav1.Condition) {
			saved = b.Status
			return b.UID, string(b.Status.Phase), b.Status.Conditions
		})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(flags.Out, "id: %s\nmanifest digest: %s\n", saved.BackupID, saved.ManifestDigest)
	return err
}

func (o *backupOptions) backup(namespace string) *operatorv1alpha1.Backup {
	out := &operatorv1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: namespace}, Spec: operatorv1alpha1.BackupSpec{
		RootShardRef: corev1.LocalObjectReference{Name: o.rootShard}, StoreRef: corev1.LocalObjectReference{Name: o.store},
	}}
	if o.name == "" { // a name of a Backup has no dots
		prefix := strings.ReplaceAll(o.rootShard, ".", "-")
		out.GenerateName = prefix[:min(len(prefix), maxPrefix)] + "-"
	}
	return out
}
