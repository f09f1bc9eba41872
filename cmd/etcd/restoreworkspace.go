package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/internal/backup/config"
)

func newRestoreWorkspaceCommand() *cobra.Command {
	var from source
	var path, directory string
	var report resultFile
	cmd := &cobra.Command{
		Use:   "restore-workspace --config FILE --id ID --identity-file FILE --workspace PATH",
		Short: "Bring a workspace that was deleted back to its shard, which runs",
		Long: `Bring a workspace that was deleted back to its place, with the objects and UIDs that it has in the backup. Its shard must run, with the feature
gate LogicalClusterMigration, and the configuration needs the endpoints and certificates of its etcd, as for create. The shard checks whether it can take
the workspace back, and serves nothing of it before all is there. After an error or an interruption, nothing of it is left, unless the message says to find out whether the workspace is back. So does one
whose program was killed: look whether it is back.
Workspaces below it are not restored with it: a workspace that has any is refused.`,
		Example: `  etcd backup restore-workspace --config=backup.yaml --id=20300102T030405Z-1a2b3c4d-5e6f7a8b --manifest-digest=DIGEST --identity-file=key.txt --workspace=root:acme:team`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return report.write(restoreWorkspace(cmd, from, path, directory))
		},
	}
	from.addFlags(cmd)
	cmd.Flags().StringVar(&path, "workspace", "", "Path of the workspace, such as root:acme:team.")
	cmd.Flags().StringVar(&directory, "work-dir", os.TempDir(), "Directory for the snapshot of a shard, which is not encrypted and is deleted at the end.")
	cmd.Flags().Lookup("work-dir").DefValue = "the directory for temporary files"
	report.addFlag(cmd)
	_ = cmd.MarkFlagRequired("workspace") // the flag exists
	return cmd
}

func restoreWorkspace(cmd *cobra.Command, from source, path, directory string) (config.Result, error) {
	started := time.Now().UTC()
	cfg, err := config.Load(from.configFile)
	if err != nil {
		return config.Result{}, err
	}
	if len(cfg.Shards) == 0 {
		return config.Result{}, errors.New("--config: it has no shards: want the endpoints and certificates of the etcd of each")
	}
	opened, err := from.open(cmd)
	if err != nil {
		return config.Result{}, err
	}
	defer opened.Close()
	restored, err := opened.RestoreWorkspace(cmd.Context(), cfg.Shards, path, directory, func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) })
	if err != nil {
		return config.Result{}, err
	}
	what := fmt.Sprintf("logical cluster %s on shard %s, %d objects, %d bytes", restored.LogicalCluster, restored.Shard, restored.Objects, restored.Bytes)
	if restored.LeftOut > 0 {
		what += fmt.Sprintf("; %d objects that expire were left out", restored.LeftOut)
	}
	taken := opened.Manifest.CutStoppedAt
	fmt.Fprintf(cmd.OutOrStdout(), "restored workspace %s as of %s: %s\n", path, taken.Format(time.RFC3339), what)
	return config.Result{
		BackupID: opened.Manifest.ID, StartedAt: started, StoppedAt: time.Now().UTC(), ManifestDigest: opened.Digest, Shards: 1, LogicalClusters: 1, Workspace: what, TakenAt: taken,
	}, nil
}
