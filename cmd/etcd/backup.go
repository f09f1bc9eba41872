package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/internal/backup"
	"github.com/atoll-dev/atoll/internal/backup/archive"
	"github.com/atoll-dev/atoll/internal/backup/config"
	"github.com/atoll-dev/atoll/internal/backup/snapshot"
	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
)

// newBackupCommand returns the command of backups. It is part of this program because a snapshot is restored by the libraries of the etcd
// that is then started with it.
func newBackupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup",
		Short: "Save the etcds and Secrets of an installation to an S3 store, verify backups, and restore an etcd from one",
		Long: `The operator runs "create" for Backups, and "restore" for Restores. All commands but "create" are for people, too: they need the store of a
configuration file, and the identity (private key of age) of a recipient for whatever is encrypted.`,
		Version:       buildversion.Get(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(newCreateCommand(), newListCommand(), newVerifyCommand(), newRestoreCommand(), newRestoreWorkspaceCommand(), newSecretsCommand())
	return cmd
}

func newCreateCommand() *cobra.Command {
	var configFile string
	var report resultFile
	cmd := &cobra.Command{
		Use:     "create --config FILE",
		Short:   "Make a backup, as the operator does for a Backup",
		Example: `  etcd backup create --config=backup.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report.write(create(cmd, configFile))
		},
	}
	addConfig(cmd, &configFile)
	report.addFlag(cmd)
	return cmd
}

// resultFile is the file in which a command leaves its result for the operator; empty for none.
type resultFile string

func (r *resultFile) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar((*string)(r), "result-file", "", "File for the result or the error, in JSON. Default: none.")
}

// write writes the result of a command, or its error, which it returns.
func (r *resultFile) write(result config.Result, err error) error {
	if err != nil {
		result = config.Result{Error: err.Error()}
	}
	if *r != "" {
		err = errors.Join(err, result.Write(string(*r)))
	}
	return err
}

func create(cmd *cobra.Command, configFile string) (config.Result, error) {
	cfg, err := config.Load(configFile)
	if err != nil {
		return config.Result{}, err
	}
	saved, err := backup.Run(cmd.Context(), cfg, slog.New(slog.NewJSONHandler(cmd.OutOrStdout(), nil)))
	if err != nil {
		return config.Result{}, err
	}
	made := saved.Manifest
	result := config.Result{
		BackupID: made.ID, DestinationPath: saved.Location, StartedAt: made.StartedAt, StoppedAt: made.StoppedAt, ManifestDigest: saved.Digest, Size: made.Size(), Shards: len(made.Shards),
	}
	for _, shard := range made.Shards {
		result.SnapshotSize += shard.Snapshot.ContentSize
		result.LogicalClusters += shard.LogicalClusters
	}
	if made.Secrets != nil {
		result.Secrets = len(made.Secrets.Names)
	}
	return result, nil
}

func newListCommand() *cobra.Command {
	var configFile string
	cmd := &cobra.Command{
		Use:     "list --config FILE",
		Short:   "List the backups of an installation, oldest first",
		Example: `  etcd backup list --config=store.yaml`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(configFile)
			if err != nil {
				return err
			}
			// What can be read is listed, whatever else is in the store: this command is needed most when something is damaged.
			found, err := archive.List(cmd.Context(), cfg.Store)
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(table, "ID\tNAMESPACE\tROOTSHARD\tTAKEN\tSHARDS\tBYTES\tCLUSTER")
			for _, m := range found {
				fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", m.ID, m.Installation.Namespace, m.Installation.RootShard, m.CutStoppedAt.Format(time.RFC3339), len(m.Shards), m.Size(),
					m.Installation.KubernetesCluster)
			}
			return errors.Join(table.Flush(), err)
		},
	}
	addConfig(cmd, &configFile)
	return cmd
}

// source are the flags of commands that read a backup.
type source struct{ configFile, id, digest, identityFile string }

func (s *source) addFlags(cmd *cobra.Command) {
	addConfig(cmd, &s.configFile)
	cmd.Flags().StringVar(&s.id, "id", "", "ID of the backup: status.backupId of its Backup, or the first column of list.")
	cmd.Flags().StringVar(&s.digest, "manifest-digest", "", "Refuse a backup whose manifest has another SHA-256 digest than status.manifestDigest of its Backup. Default: accept any.")
	cmd.Flags().StringVar(&s.identityFile, "identity-file", "", "File with identities (private keys) of age, one a line.")
	for _, name := range []string{"id", "identity-file"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
}

func (s *source) open(cmd *cobra.Command) (*backup.Backup, error) {
	cfg, err := config.Load(s.configFile)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(s.identityFile)
	if err != nil {
		return nil, fmt.Errorf("--identity-file: %w", err)
	}
	defer file.Close()
	identities, err := age.ParseIdentities(file)
	if err != nil {
		// The error of age quotes the line, which may be a key.
		return nil, fmt.Errorf("--identity-file: %s has no identities of age: want lines AGE-SECRET-KEY-..., as age-keygen writes them", s.identityFile)
	}
	return backup.Open(cmd.Context(), cfg.Store, s.id, s.digest, identities)
}

func newVerifyCommand() *cobra.Command {
	var from source
	cmd := &cobra.Command{
		Use:     "verify --config FILE --id ID --identity-file FILE",
		Short:   "Read a whole backup, check all hashes, and report where it is damaged",
		Example: `  etcd backup verify --config=store.yaml --id=20300102T030405Z-1a2b3c4d-5e6f7a8b --manifest-digest=DIGEST --identity-file=key.txt`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opened, err := from.open(cmd)
			if err != nil {
				return err
			}
			defer opened.Close()
			if err := opened.Verify(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "backup %s is intact: %d objects, %d bytes\n", from.id, len(opened.Manifest.Objects())+1, opened.Manifest.Size())
			return nil
		},
	}
	from.addFlags(cmd)
	return cmd
}

func newRestoreCommand() *cobra.Command {
	var from source
	var shard string
	var target snapshot.Target
	var owner snapshot.Owner
	var peerURLs []string
	var report resultFile
	cmd := &cobra.Command{
		Use:   "restore --config FILE --id ID --identity-file FILE --shard NAME --data-dir DIRECTORY",
		Short: "Restore the etcd of one shard into a new data directory",
		Long: `Restore the etcd of one shard into a data directory that does not exist yet. The snapshot is verified first, and compared with the list of
logical clusters that was read beside it. The revision is raised, and all earlier ones are compacted, so that clients list again. A key
marks the shard as restored: while it exists, the shard deletes nothing because it is absent.
Start etcd with the same --name, --initial-cluster and --initial-advertise-peer-urls. For several members, run it once for each, with the same
--initial-cluster and --initial-cluster-token. The disk needs twice the size of the database for a while.`,
		Example: `  etcd backup restore --config=store.yaml --id=20300102T030405Z-1a2b3c4d-5e6f7a8b --manifest-digest=DIGEST --identity-file=key.txt --shard=root --data-dir=restored \
    --name=root-etcd-0 --initial-cluster=root-etcd-0=https://localhost:2380 --initial-advertise-peer-urls=https://localhost:2380`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target.InitialAdvertisePeerURLs = peerURLs
			return report.write(restore(cmd, from, shard, target, owner))
		},
	}
	from.addFlags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&shard, "shard", "", "Name of the RootShard or Shard.")
	flags.StringVar(&target.DataDir, "data-dir", "", "Data directory of the member; it must be empty or not exist.")
	flags.StringVar(&target.Name, "name", "default", "Name of the member.")
	flags.StringVar(&target.InitialCluster, "initial-cluster", "default=http://localhost:2380", "NAME=PEER-URL of each member, separated by commas.")
	flags.StringVar(&target.InitialClusterToken, "initial-cluster-token", "etcd-cluster", "Token of the new etcd; that of each restore is to be another one.")
	flags.StringSliceVar(&peerURLs, "initial-advertise-peer-urls", []string{"http://localhost:2380"}, "Peer URLs of this member.")
	flags.StringVar(&target.ID, "restore-id", "", "ID of a restore whose attempts are repeated: with a data directory that this restore has made, the command does nothing. Default: a data directory that exists is refused.")
	flags.StringVar(&owner.Name, "owner", "", "Owner of the keys (--etcd-owner of the shard). A snapshot with keys of another one is refused. Default: any, and the shard says at its start whether it is the owner.")
	flags.StringVar(&owner.Prefix, "prefix", "", "Prefix of the keys (--etcd-prefix of the shard). A backup of another one is refused. Default: any.")
	flags.BoolVar(&owner.TakeOver, "take-over", false, "Give the keys of another owner to --owner. The installation of the other one must not run any more.")
	report.addFlag(cmd)
	for _, name := range []string{"shard", "data-dir"} {
		_ = cmd.MarkFlagRequired(name) // the flag exists
	}
	return cmd
}

// restore restores one shard, and prints what it has restored.
func restore(cmd *cobra.Command, from source, shard string, target snapshot.Target, owner snapshot.Owner) (config.Result, error) {
	if owner.TakeOver && owner.Name == "" {
		return config.Result{}, errors.New("--take-over: set --owner, too")
	}
	started := time.Now().UTC()
	opened, err := from.open(cmd)
	if err != nil {
		return config.Result{}, err
	}
	defer opened.Close()
	restored, repeated, err := opened.RestoreShard(cmd.Context(), shard, target, owner)
	if err != nil {
		return config.Result{}, err
	}
	if repeated {
		fmt.Fprintf(cmd.OutOrStdout(), "%s was restored before by %s\n", target.DataDir, target.ID)
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "restored shard %s as of %s into %s: revision %d to %d, %d logical clusters. Nothing is deleted because it is absent until you delete the key %s\n", shard,
			opened.Manifest.CutStoppedAt.Format(time.RFC3339), target.DataDir, restored.RevisionFrom, restored.RevisionTo, restored.LogicalClusters, reservedkeys.Restored(restored.Prefix))
	}
	return config.Result{
		BackupID: opened.Manifest.ID, StartedAt: started, StoppedAt: time.Now().UTC(), Size: restored.Snapshot.Size, SnapshotSize: restored.Snapshot.ContentSize, Shards: 1, LogicalClusters: restored.LogicalClusters,
	}, nil
}

func newSecretsCommand() *cobra.Command {
	var from source
	var out string
	cmd := &cobra.Command{
		Use:     "secrets --config FILE --id ID --identity-file FILE --output FILE",
		Short:   "Write the Secrets of a backup to a tar of manifests",
		Example: `  etcd backup secrets --config=store.yaml --id=20300102T030405Z-1a2b3c4d-5e6f7a8b --manifest-digest=DIGEST --identity-file=key.txt --output=secrets.tar`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opened, err := from.open(cmd)
			if err != nil {
				return err
			}
			defer opened.Close()
			if err := opened.WriteSecrets(cmd.Context(), out); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s: %s\n", out, strings.Join(opened.Manifest.Secrets.Names, ", "))
			return nil
		},
	}
	from.addFlags(cmd)
	cmd.Flags().StringVar(&out, "output", "", "File to write; it must not exist.")
	_ = cmd.MarkFlagRequired("output") // the flag exists
	return cmd
}

func addConfig(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "File with the store and, for create, what is saved; docs/backup.md describes it.")
	_ = cmd.MarkFlagRequired("config") // the flag exists
}
