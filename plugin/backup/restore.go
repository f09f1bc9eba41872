package backup

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
)

// NewRestoreCommand returns "kubectl kcp restore". The caller binds the flags of the connection.
func NewRestoreCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Restore an installation, one shard or a workspace from a Backup, and release it",
		Long: `Restore an installation, one shard or a workspace from a Backup, and release it. The commands use the namespace of the RootShard in the cluster with
the operator, not a workspace: select it with --context and --namespace.

Whole installations that have not started are restored, and of one that runs, one shard, or a workspace that was deleted.`,
		Example: "  kubectl kcp restore create back --context host -n kcp --backup before-upgrade --identity-secret age --wait\n  kubectl kcp restore release back --context host -n kcp",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRestoreCreateCommand(flags), newReleaseCommand(flags))
	return cmd
}

// restoreOptions are the flags of "kubectl kcp restore create".
type restoreOptions struct {
	waitOptions

	name, backup, id, rootShard, store, manifestDigest string
	workspace                                          string
	identitySecret, identityKey, sourceNamespace       string
	shard                                              string
	takeOver, discardData                              bool
}

func (o *restoreOptions) validate() error {
	switch {
	case o.identitySecret == "" || o.identityKey == "":
		return errors.New("--identity-secret is required, and --identity-key must not be empty: the Secret with the private key of age, and its key")
	case o.backup != "" && (o.id != "" || o.rootShard != "" || o.store != ""):
		return errors.New("--backup cannot be combined with --id, --root-shard or --store: the Backup has them")
	case o.backup == "" && (o.id == "" || o.rootShard == "" || o.store == ""):
		return errors.New("name the backup with --backup, or, if that does not exist in the cluster any more, with --id, --root-shard and --store")
	case o.workspace != "" && o.shard != "":
		return errors.New("--workspace cannot be combined with --shard: a Restore brings back one of them")
	case o.workspace != "" && (o.takeOver || o.sourceNamespace != ""):
		return errors.New("--workspace cannot be combined with --take-over or --source-namespace: a workspace comes back to the installation that it was in")
	case o.backup == "" && o.manifestDigest == "":
		return errors.New("--manifest-digest is required with --id: without it, users who may write to the bucket decide about the data of the installation. If you do not have the digest, create the Restore from a manifest")
	}
	switch {
	case o.shard == "" && o.discardData:
		return errors.New("--discard-data has no effect without --shard: a Restore of a whole installation replaces no data")
	case o.shard != "" && (o.takeOver || o.sourceNamespace != ""):
		return errors.New("--take-over and --source-namespace cannot be combined with --shard: one shard is restored from a backup of the installation that runs")
	}
	return errors.Join(checkName("Restore", o.name), follow.ValidateTimeout(o.wait, o.timeout))
}

func newRestoreCreateCommand(flags *connection.Flags) *cobra.Command {
	o := restoreOptions{identityKey: "key.txt"}
	cmd := &cobra.Command{
		Use:   "create NAME (--backup BACKUP | --id ID --root-shard ROOTSHARD --store BACKUPSTORE --manifest-digest DIGEST) --identity-secret SECRET",
		Short: "Restore an installation before it starts, one shard, or a workspace that was deleted, and show what to do next",
		Long: `Create a Restore, which fills an installation before it starts, and show what to do next. It replaces no data: an installation that has
started is refused. The operator does the work: the command can be stopped with ctrl-C.

With --shard, the Restore replaces the data of that Shard in an installation that runs. The shard is stopped as soon as its annotation names the
Restore. A shard whose volumes are not empty is refused, with what would be lost, unless --discard-data confirms that.

With --workspace, it brings one workspace that was deleted back into its place, in the installation that runs.

--backup names a completed Backup of the namespace. --id is for one that has no object in the cluster any more. The digest of the manifest is that of
the Backup; with --manifest-digest, that of the Backup has to be the same.

Exit codes: 0 if the Restore was created and, with --wait, is completed; otherwise 1.`,
		Example: `  # from a Backup of this cluster
  kubectl kcp restore create back --context host -n kcp --backup before-upgrade --identity-secret age

  # one shard of an installation that runs
  kubectl kcp restore create alpha-back --context host -n kcp --backup nightly-29000000 --shard alpha --identity-secret age
  # a workspace was deleted by mistake
  kubectl kcp restore create team-back --context host -n kcp --backup yesterday --identity-secret age --workspace root:acme:team --wait

  # everything was lost
  kubectl kcp restore create back --context host -n kcp --root-shard root --store offsite --id 20300102T030405Z-1a2b3c4d-5e6f7a8b \
    --manifest-digest 5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9 --identity-secret age --take-over --wait`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			return o.run(ctx, flags)
		},
	}
	cmd.Flags().StringVar(&o.backup, "backup", "", "Name of the Backup to restore")
	cmd.Flags().StringVar(&o.id, "id", "", "ID of the backup in the store, if it has no Backup in the cluster")
	cmd.Flags().StringVar(&o.rootShard, "root-shard", "", "Name of the RootShard to restore, with --id")
	cmd.Flags().StringVar(&o.store, "store", "", "Name of the BackupStore that has the backup, with --id")
	cmd.Flags().StringVar(&o.manifestDigest, "manifest-digest", "", "SHA-256 digest of the manifest of the backup. A backup with another manifest is refused")
	cmd.Flags().StringVar(&o.identitySecret, "identity-secret", "", "Name of the Secret with the private key of age")
	cmd.Flags().StringVar(&o.identityKey, "identity-key", o.identityKey, "Key of that Secret")
	cmd.Flags().StringVar(&o.sourceNamespace, "source-namespace", "", "Namespace of the installation that was saved, if it had another one")
	cmd.Flags().StringVar(&o.shard, "shard", "", "Name of the Shard to restore, in an installation that runs")
	cmd.Flags().BoolVar(&o.discardData, "discard-data", false, "Confirm that what the shard has written since the backup is lost")
	cmd.Flags().StringVar(&o.workspace, "workspace", "", "Path of the one workspace to restore, such as root:acme:team, in an installation that runs")
	cmd.Flags().BoolVar(&o.takeOver, "take-over", false, "Confirm that the installation that was saved, in another namespace or cluster, does not run and never will")
	o.bind(cmd)
	return cmd
}

func (o *restoreOptions) run(ctx context.Context, flags *connection.Flags) error {
	host, err := open(flags)
	if err != nil {
		return err
	}
	if o.backup != "" {
		backup, err := get[operatorv1alpha1.Backup](ctx, host.backups(), o.backup)
		if err != nil {
			return host.explain(err, "reading the Backup")
		}
		if err := o.complete(backup); err != nil {
			return err
		}
	}
	created, err := create(ctx, host.restores(), "Restore", o.restore(host.namespace))
	if err != nil {
		return host.explain(err, "creating the Restore")
	}
	switch {
	case o.shard != "":
		fmt.Fprintf(flags.Out, nextStepsOfShard, created.Name, created.Namespace, o.shard, operatorv1alpha1.AnnotationRestore, o.identitySecret)
	case o.workspace != "":
		fmt.Fprintf(flags.Out, nextStepsOfWorkspace, created.Name, created.Namespace, created.Spec.RootShardRef.Name, operatorv1alpha1.AnnotationRestore, o.identitySecret)
	default:
		fmt.Fprintf(flags.Out, nextSteps, created.Name, created.Namespace, created.Spec.RootShardRef.Name, operatorv1alpha1.AnnotationRestore, o.identitySecret)
	}
	if !o.wait {
		return nil
	}
	return until(ctx, flags, o.waitOptions, host.restores(), followed{"Restore", created.Name, created.UID}, string(operatorv1alpha1.RestorePhaseCompleted), string(operatorv1alpha1.RestorePhaseFailed),
		func(r *operatorv1alpha1.Restore) (types.UID, string, []metav1.Condition) {
			return r.UID, string(r.Status.Phase), r.Status.Conditions
		})
}

// nextSteps has the names of the Restore, its namespace, the RootShard, the annotation and the Secret.
const nextSteps = `Created Restore %[1]q in namespace %[2]q. Next:
  1. Stop what would read the older state as deletions, such as sync agents (docs/restore.md).
  2. Create RootShard %[3]q with the annotation %[4]s: %[1]s, and its Shards. It waits for the Restore. One that has started is not restored.
  3. Wait: kubectl -n %[2]s wait restore/%[1]s --for=jsonpath='{.status.phase}'=Completed --timeout=1h
  4. Delete the private key: kubectl -n %[2]s delete secret %[5]s
  5. Compare the installation with what lives outside of it; kubectl kcp doctor --deep lists Workspaces and logical clusters without each other.
  6. Let it delete again what it does not find: kubectl kcp restore release %[1]s -n %[2]s
`

// nextStepsOfShard has the names of the Restore, its namespace, the Shard, the annotation and the Secret.
const nextStepsOfShard = `Created Restore %[1]q in namespace %[2]q. Next:
  1. Stop what would read the older state as deletions, such as sync agents (docs/restore-shard.md).
  2. Let the operator stop the shard: kubectl -n %[2]s annotate shard.operator.kcp.io %[3]s --overwrite %[4]s=%[1]s
  3. Wait: kubectl -n %[2]s wait restore/%[1]s --for=jsonpath='{.status.phase}'=Completed --timeout=1h
  4. Delete the private key: kubectl -n %[2]s delete secret %[5]s
  5. Remove the annotation when the shard is available, also from the manifest of the Shard:
     kubectl -n %[2]s wait shard.operator.kcp.io/%[3]s --for=condition=Available --timeout=30m
     kubectl -n %[2]s annotate shard.operator.kcp.io %[3]s %[4]s-
  6. See what differs from the other shards: kubectl -n %[2]s describe restore %[1]s
  7. Let the shard delete again what it does not find: kubectl kcp restore release %[1]s -n %[2]s
`

// nextStepsOfWorkspace is nextSteps for one workspace.
const nextStepsOfWorkspace = `Created Restore %[1]q in namespace %[2]q, for a workspace of RootShard %[3]q. Next:
  1. Wait: kubectl -n %[2]s wait restore/%[1]s --for=jsonpath='{.status.phase}'=Completed --timeout=1h
     If it fails, its condition Completed says why. Nothing has changed, unless it says to find out whether the workspace is back: kubectl -n %[2]s get restore %[1]s
  2. Delete the private key: kubectl -n %[2]s delete secret %[5]s
`

// complete takes what a Backup knows.
func (o *restoreOptions) complete(backup *operatorv1alpha1.Backup) error {
	digest := backup.Status.ManifestDigest
	switch {
	case backup.Status.Phase != operatorv1alpha1.BackupPhaseCompleted:
		return fmt.Errorf("Backup %q is not one to restore: got the state %s, expected Completed", backup.Name, stateOf(string(backup.Status.Phase), backup.Status.Conditions))
	case metav1.HasAnnotation(backup.ObjectMeta, operatorv1alpha1.AnnotationRemoveBackup):
		return fmt.Errorf("Backup %q is being removed from its store by the retention of its schedule: choose another one", backup.Name)
	case digest == "" && o.manifestDigest == "":
		return fmt.Errorf("Backup %q has no digest of its manifest: set --manifest-digest", backup.Name)
	case digest != "" && o.manifestDigest != "" && digest != o.manifestDigest:
		return fmt.Errorf("--manifest-digest is %s, expected %s, which Backup %q has: one of them is not that of this backup", o.manifestDigest, digest, backup.Name)
	case digest != "":
		o.manifestDigest = digest
	}
	o.id, o.rootShard, o.store = backup.Status.BackupID, backup.Spec.RootShardRef.Name, backup.Spec.StoreRef.Name
	return nil
}

func (o *restoreOptions) restore(namespace string) *operatorv1alpha1.Restore {
	out := &operatorv1alpha1.Restore{ObjectMeta: metav1.ObjectMeta{Name: o.name, Namespace: namespace}, Spec: operatorv1alpha1.RestoreSpec{
		RootShardRef: corev1.LocalObjectReference{Name: o.rootShard}, StoreRef: corev1.LocalObjectReference{Name: o.store}, BackupID: o.id, ManifestDigest: o.manifestDigest,
		Identity: operatorv1alpha1.SecretKeyReference{Name: o.identitySecret, Key: o.identityKey}, TakeOver: o.takeOver,
	}}
	if o.shard != "" {
		out.Spec.Shard = &operatorv1alpha1.RestoreShard{Name: o.shard, DiscardData: o.discardData}
	}
	if o.workspace != "" {
		out.Spec.Workspace = &operatorv1alpha1.RestoreWorkspace{Path: o.workspace}
	}
	if o.sourceNamespace != "" {
		out.Spec.Source = &operatorv1alpha1.RestoreSource{Namespace: o.sourceNamespace}
	}
	return out
}
