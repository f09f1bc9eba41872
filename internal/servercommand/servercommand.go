// Package servercommand contains the common code of the commands of all servers of an installation: how they start, end and print their
// flags.
package servercommand

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // the image has no public CAs
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/term"

	"github.com/atoll-dev/atoll/internal/gomemlimit"
)

// Main runs a command until it ends or the process receives a signal, and exits with 1 if it fails.
func Main(cmd *cobra.Command) {
	err := cmd.ExecuteContext(genericapiserver.SetupSignalContext())
	logs.FlushLogs()
	if err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

// Configure applies the logging flags and the memory limit of the container to the process. gates is nil for a command
// without feature gates for logging.
func Configure(logging *logsapi.LoggingConfiguration, gates featuregate.FeatureGate) error {
	if err := logsapi.ValidateAndApply(logging, gates); err != nil {
		return fmt.Errorf("logging flags: %w", err)
	}
	if err := compatibility.DefaultComponentGlobalsRegistry.Set(); err != nil { // the flags are parsed
		return fmt.Errorf("--emulated-version, --feature-gates: %w", err)
	}
	gomemlimit.Set()
	return nil
}

// ConfigureMetrics applies the flags for hidden and disabled metrics, which are valid, to the process.
func ConfigureMetrics(o *metrics.Options) {
	if o.ShowHiddenMetricsForVersion != "" {
		metrics.SetShowHidden()
	}
	metrics.SetDisabledMetrics(o.DisabledMetrics)
}

// AddFlagSets adds named sets of flags to a command, whose help prints them by set.
func AddFlagSets(cmd *cobra.Command, sets cliflag.NamedFlagSets) {
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nUsage:\n  %s\n\nExamples:\n%s\n", cmd.Long, cmd.UseLine(), cmd.Example)
		PrintFlagSets(cmd, sets)
	})
}

// PrintFlagSets prints named sets of flags as wide as the terminal.
func PrintFlagSets(cmd *cobra.Command, sets cliflag.NamedFlagSets) {
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.PrintSections(cmd.OutOrStdout(), sets, columns)
}
