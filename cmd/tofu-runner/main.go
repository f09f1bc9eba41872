// Command tofu-runner runs OpenTofu in the pods of the infrastructure provider's opentofu backend. It only parses flags; everything else
// is in package runner.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/atoll-dev/atoll/infrastructure/backends/opentofu/runner"
	"github.com/atoll-dev/atoll/internal/buildversion"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := runner.Options{LeaseDuration: time.Minute}
	cmd := &cobra.Command{
		Use:   "tofu-runner apply|check|repair|destroy",
		Short: "Run OpenTofu on the inputs of an instance, with its state in a Secret",
		Long: `tofu-runner is the entry point of the image that --opentofu-image of infrastructure-provider names; tofu is beside it. The provider
starts it in a Job. It holds the lease of the instance while it runs, and ends tofu in order when it gets SIGTERM.`,
		Example:       "  tofu-runner apply --namespace=tenant --name=tofu-0123456789 --inputs=/inputs --work=/work",
		Version:       buildversion.Long(),
		Args:          cobra.ExactArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var name string
	cmd.Flags().StringVar(&o.Namespace, "namespace", "", "namespace of the Secrets and of the lease (required)")
	cmd.Flags().StringVar(&name, "name", "", "name of the lease, and prefix of those of the Secrets (required)")
	cmd.Flags().DurationVar(&o.LeaseDuration, "lease-duration", o.LeaseDuration, "time after which the lease of a run that was killed can be taken")
	cmd.Flags().StringVar(&o.Inputs, "inputs", "/inputs", "directory of the module, the variables and the settings")
	cmd.Flags().StringVar(&o.Work, "work", "/work", "empty directory for the copy of the module and for providers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if o.Namespace == "" || name == "" {
			return fmt.Errorf("--namespace and --name are required")
		}
		var err error
		o.Config, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
		if err != nil {
			return fmt.Errorf("finding the runtime cluster: %w", err)
		}
		executable, err := os.Executable()
		if err != nil {
			return err
		}
		host, err := os.Hostname()
		if err != nil {
			return err
		}
		o.Operation, o.State, o.Result, o.Lease = runner.Operation(args[0]), runner.StateName(name), runner.ResultName(name), name
		o.Identity, o.Tofu = fmt.Sprintf("%s-%d", host, os.Getpid()), filepath.Join(filepath.Dir(executable), "tofu")
		return runner.Run(cmd.Context(), o)
	}
	return cmd
}
