package publishedresource

import (
	"bytes"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/manifests"
	"github.com/atoll-dev/atoll/syncagent/projection"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

// NewCommand returns "kubectl kcp publishedresource". The caller binds the flags of the connection.
func NewCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "publishedresource",
		Aliases: []string{"publishedresources", "pubres"},
		Short:   "Check what PublishedResources publish before they are applied",
		Example: "  kubectl kcp publishedresource validate certificates.yaml\n  kubectl kcp publishedresource crd certificates.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newValidateCommand(flags), newCRDCommand(flags))
	return cmd
}

// input is the file with PublishedResources, of either dialect.
type input struct {
	flags *connection.Flags
	file  string
	// group is the API group of the Service, for the older dialect.
	group string
}

func (in *input) bind(cmd *cobra.Command) {
	cmd.Flags().StringVar(&in.group, "service-group", "",
		"API group of the Service, in which PublishedResources of services.kdp.k8c.io are published")
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return []cobra.Completion{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
	}
}

func newValidateCommand(flags *connection.Flags) *cobra.Command {
	in, offline := input{flags: flags}, false
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Say what is wrong with PublishedResources before they are applied",
		Long: `Says everything that is wrong with the PublishedResources in a file, with the paths of the fields: names, selectors,
templates, CEL expressions, related resources. Warns where consumers can name objects of the service cluster. Unless --offline is given, it also looks up on the service cluster whether the
resource, its versions and the related resources exist. Nothing is written to the server.`,
		Example: `  # with the service cluster of the current context
  kubectl kcp publishedresource validate certificates.yaml

  # without a server, for instance in CI
  kubectl kcp publishedresource validate --offline certificates.yaml

  # PublishedResources of services.kdp.k8c.io
  kubectl kcp publishedresource validate --service-group certificates.example.corp certificates.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.file = args[0]
			return in.validate(cmd.Context(), offline)
		},
	}
	cmd.Flags().BoolVar(&offline, "offline", false, "Send no request to the service cluster")
	in.bind(cmd)
	return cmd
}

func (in *input) validate(ctx context.Context, offline bool) error {
	publications, err := in.read()
	if err != nil {
		return err
	}
	var cluster *serviceCluster
	if !offline {
		if cluster, err = connect(in.flags); err != nil {
			return err
		}
	}
	problems := 0
	for _, p := range publications {
		errs := p.Invalid
		if len(errs) == 0 && cluster != nil {
			if errs, err = cluster.check(ctx, p); err != nil {
				return fmt.Errorf("checking %s: %w", describe(p), err)
			}
		}
		for _, err := range errs {
			fmt.Fprintf(in.flags.Out, "%s: %s\n", describe(p), err)
		}
		for _, warning := range warnings(p) {
			fmt.Fprintf(in.flags.Out, "Warning: %s: %s\n", describe(p), warning)
		}
		if len(errs) == 0 {
			fmt.Fprintf(in.flags.Out, "%s is valid\n", describe(p))
		}
		problems += len(errs)
	}
	switch problems {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s has a mistake", manifests.Name(in.file))
	}
	return fmt.Errorf("%s has %d mistakes", manifests.Name(in.file), problems)
}

func describe(p *publication.Publication) string {
	return fmt.Sprintf("PublishedResource %q", p.Object.GetName())
}

// crdOptions are the flags of "crd".
type crdOptions struct {
	input
	noProjection, schema bool
	agentName            string
	output               manifests.Format
}

func newCRDCommand(flags *connection.Flags) *cobra.Command {
	o := crdOptions{input: input{flags: flags}}
	cmd := &cobra.Command{
		Use:   "crd FILE",
		Short: "Print the definition or schema that PublishedResources publish",
		Long: `Prints the CustomResourceDefinition that workspaces would see of each PublishedResource in a file, or the APIResourceSchema
that the agent would create. The source is looked up on the service cluster: the server of the kubeconfig. Resources without a
definition, such as Roles, are described from its OpenAPI documents. Nothing is written to the server.`,
		Example: `  # what workspaces see
  kubectl kcp publishedresource crd certificates.yaml

  # the source as the agent sees it, before any projection
  kubectl kcp publishedresource crd --no-projection certificates.yaml

  # the schema, from the service cluster of another context
  kubectl kcp publishedresource crd --ars --context services certificates.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			return o.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.noProjection, "no-projection", false, "Print the source as it is on the service cluster")
	cmd.Flags().BoolVar(&o.schema, "ars", false, "Print an APIResourceSchema in place of a CustomResourceDefinition")
	cmd.Flags().StringVar(&o.agentName, "agent-name", "", "Name of the agent, which is a label of the schema")
	o.bind(cmd)
	o.output.Bind(cmd)
	return cmd
}

func (o *crdOptions) run(ctx context.Context) error {
	if err := o.output.Validate(); err != nil {
		return err
	}
	publications, err := o.read()
	if err != nil {
		return err
	}
	cluster, err := connect(o.flags)
	if err != nil {
		return err
	}
	var output bytes.Buffer // nothing is written after an error
	for _, p := range publications {
		object, err := o.object(ctx, cluster, p)
		if err == nil {
			err = o.output.Write(&output, object)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", describe(p), err)
		}
	}
	_, err = output.WriteTo(o.flags.Out)
	return err
}

// object returns the definition or the schema.
func (o *crdOptions) object(ctx context.Context, cluster *serviceCluster, p *publication.Publication) (any, error) {
	if err := p.Invalid.ToAggregate(); err != nil {
		return nil, err
	}
	definition, err := cluster.definition(ctx, p)
	if err != nil {
		return nil, err
	}
	if !o.noProjection {
		if definition, err = projection.Project(definition, &p.Spec); err != nil {
			return nil, err
		}
	}
	if !o.schema {
		return definition, nil
	}
	schema, err := projection.Schema(definition, o.agentName)
	if err != nil {
		return nil, err
	}
	if o.agentName == "" {
		delete(schema.Labels, publication.LabelAgentName)
		delete(schema.Annotations, publication.LabelAgentName)
	}
	return schema, nil
}
