package backup

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
)

// maxAnswer bounds what is read of the answer of the user.
const maxAnswer = 1024

// allowed has the name of the Restore, its namespace, the shards, and the time of their data.
const allowed = `Restore %[1]q in namespace %[2]q has restored the shards %[3]s to the state of %[4]s. Releasing them allows, and cannot be undone:
  - shards delete logical clusters whose Workspace they do not find, and what moved logical clusters have left;
  - BackupSchedules of the installation remove old Backups again.
Compare the installation with what lives outside of it first: kubectl kcp doctor --deep lists Workspaces and logical clusters without each other.
`

func newReleaseCommand(flags *connection.Flags) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "Let restored shards delete again what they do not find",
		Long: `Let the shards that a Restore has restored delete again what they do not find. It is for the person who has compared the installation with
what lives outside of it, and cannot be undone: the command shows what it allows, and asks for the name of the Restore.

Exit codes: 0 if the Restore is released; otherwise 1. The condition Released says when all shards know.`,
		Example: `  # show what it allows, and ask
  kubectl kcp restore release back --context host -n kcp`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName("Restore", args[0]); err != nil {
				return err
			}
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			return release(ctx, flags, args[0], yes)
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask")
	return cmd
}

func release(ctx context.Context, flags *connection.Flags, name string, yes bool) error {
	host, err := open(flags)
	if err != nil {
		return err
	}
	restore, err := get[operatorv1alpha1.Restore](ctx, host.restores(), name)
	if err != nil {
		return host.explain(err, "reading the Restore")
	}
	if restore.Spec.Workspace != nil {
		return fmt.Errorf("Restore %q has restored the workspace %s, which holds nothing: got no installation to release", name, restore.Spec.Workspace.Path)
	}
	if restore.Status.Phase != operatorv1alpha1.RestorePhaseCompleted { // spec.release would take effect as soon as it is completed, unseen
		return fmt.Errorf("Restore %q is not one to release: got the state %s, expected Completed", name, stateOf(string(restore.Status.Phase), restore.Status.Conditions))
	}
	if !restore.Spec.Release {
		taken := "an unknown time"
		if at := restore.Status.BackupTakenAt; at != nil {
			taken = at.UTC().Format("2006-01-02 15:04:05 UTC")
		}
		fmt.Fprintf(flags.Out, allowed, name, restore.Namespace, strings.Join(restore.Status.Shards, ", "), taken)
		if !yes {
			if err := confirm(flags, name); err != nil {
				return err
			}
		}
		// The UID is a precondition: the user has confirmed this Restore, not a later one of the same name.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": restore.UID}, "spec": map[string]any{"release": true}})
		if err != nil {
			return err
		}
		if _, err := host.restores().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return host.explain(err, "releasing the Restore")
		}
	}
	_, err = fmt.Fprintf(flags.Out, "Restore %q is released. To wait until all shards have applied it: kubectl -n %s wait restore/%s --for=condition=Released\n", name, restore.Namespace, name)
	return err
}

// confirm asks for the name of the Restore.
func confirm(flags *connection.Flags, name string) error {
	fmt.Fprint(flags.ErrOut, "Type the name of the Restore to release it: ")
	answer, err := bufio.NewReader(io.LimitReader(flags.In, maxAnswer)).ReadString('\n')
	if err != nil && err != io.EOF {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if answer = strings.TrimSpace(answer); answer != name {
		return fmt.Errorf("nothing is released: got %q, expected %q, or --yes", answer, name)
	}
	return nil
}
