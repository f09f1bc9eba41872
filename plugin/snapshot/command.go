package snapshot

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/atoll-dev/atoll/internal/apiresourceschema"
	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/manifests"
)

// NewCommand returns "kubectl kcp crd". The caller binds the flags of the connection, of which only the streams are
// used.
func NewCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "crd",
		Short:   "Make use of CustomResourceDefinitions",
		Example: "  kubectl kcp crd snapshot -f crd.yaml --prefix v240115",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSnapshotCommand(flags.IOStreams))
	return cmd
}

// options are the flags of "kubectl kcp crd snapshot".
type options struct {
	file, prefix string
	output       manifests.Format
}

func newSnapshotCommand(streams genericiooptions.IOStreams) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "snapshot -f FILE --prefix PREFIX",
		Short: "Turn CustomResourceDefinitions into APIResourceSchemas",
		Long: `Turn CustomResourceDefinitions into APIResourceSchemas, which an APIExport can offer to other workspaces. The names of
the schemas are PREFIX.RESOURCE.GROUP. A schema never changes: take a new prefix whenever the definition has changed.`,
		Example: `  # from a file with one or more definitions
  kubectl kcp crd snapshot -f crd.yaml --prefix v240115 > schema.yaml

  # straight from one workspace into another
  kubectl get crd cowboys.wildwest.dev -o yaml | kubectl kcp crd snapshot -f - --prefix today | kubectl --context provider apply -f -`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(_ *cobra.Command, _ []string) error { return o.run(streams) },
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "File with the definitions, - for standard input")
	cmd.Flags().StringVar(&o.prefix, "prefix", "", "First part of the names of the schemas, for instance a date")
	o.output.Bind(cmd)
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

func (o options) validate() error {
	switch {
	case o.file == "":
		return errors.New("--filename is required")
	case o.prefix == "":
		return errors.New("--prefix is required")
	}
	return o.output.Validate()
}

func (o options) run(streams genericiooptions.IOStreams) error {
	if err := o.validate(); err != nil {
		return err
	}
	definitions, err := readDefinitions(o.file, streams.In)
	if err != nil {
		return err
	}
	var output bytes.Buffer // nothing is written after an error
	for _, definition := range definitions {
		schema, err := apiresourceschema.FromDefinition(definition, o.prefix)
		if err == nil {
			err = o.output.Write(&output, schema)
		}
		if err != nil {
			return fmt.Errorf("making a schema of CustomResourceDefinition %q: %w", definition.Name, err)
		}
	}
	_, err = output.WriteTo(streams.Out)
	return err
}
