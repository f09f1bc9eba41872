// Package plugin turns a library command into a kubectl plugin: standard streams, version, exit code. Every plugin
// binary is one call of Main; the commands are in the packages below.
package plugin

import (
	"errors"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/atoll-dev/atoll/internal/buildversion"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// Main runs a command as the plugin with that display name ("kubectl ws"). If it fails, it exits with the exit code of the error, or 1
// for an error without one. The flags of the connection are added to the command and all its sub-commands.
func Main(displayName string, build func(*connection.Flags) *cobra.Command) {
	flags := connection.NewFlags(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	if err := NewRootCommand(displayName, flags, build).Execute(); err != nil {
		os.Exit(exitCode(err)) // cobra has printed the error
	}
}

func exitCode(err error) int {
	var withCode interface{ ExitCode() int }
	if errors.As(err, &withCode) {
		return withCode.ExitCode()
	}
	return 1
}

// NewRootCommand returns the top command of a plugin with the settings that all plugins have in common.
func NewRootCommand(displayName string, flags *connection.Flags, build func(*connection.Flags) *cobra.Command) *cobra.Command {
	cmd := build(flags)
	cmd.Version = buildversion.Get()
	cmd.SilenceUsage = true // an error is printed without the usage text
	cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: displayName}
	cmd.SetIn(flags.In)
	cmd.SetErr(flags.ErrOut) // not the output: cobra would print its deprecation notices there
	flags.Bind(cmd.PersistentFlags())
	return cmd
}
