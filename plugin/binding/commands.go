package binding

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

// defaultTimeout is the default limit for the wait for a binding.
const defaultTimeout = 30 * time.Second

// NewBindCommand returns "kubectl kcp bind". The caller binds the flags of the connection.
func NewBindCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "bind",
		Short:   "Bind APIs of other workspaces into this one",
		Example: "  kubectl kcp bind apiexport root:org:provider:cowboys",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBindExportCommand(flags))
	return cmd
}

func newBindExportCommand(flags *connection.Flags) *cobra.Command {
	var request Request
	cmd := &cobra.Command{
		Use:   "apiexport PATH:EXPORT",
		Short: "Bind an APIExport",
		Long: `Bind an APIExport into the current workspace and wait until its APIs are served there.

An export may claim access to objects of other APIs in your workspace. Nothing is given away unless you accept a claim,
here or later with "kubectl kcp claims accept". What is accepted here covers all objects and the verb "*", which has an effect
on claims for "*" alone: where an export names its verbs, let "kubectl kcp claims accept" follow, which takes them over.
To answer all claims at once you need the right to read the APIExport in its workspace.`,
		Example: `  # bind the export "cowboys" of the workspace root:org:provider
  kubectl kcp bind apiexport root:org:provider:cowboys

  # under another name, into another workspace
  kubectl kcp bind apiexport root:org:provider:cowboys --name west -w :root:org:consumer

  # give the provider the config maps of this workspace that it asks for, and not the secrets
  kubectl kcp bind apiexport root:org:provider:cowboys \
    --accept-permission-claim configmaps.core --reject-permission-claim secrets.core`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("name one APIExport to bind: <path>:<apiexport>, the full path of its workspace and its name, as in root:org:provider:cowboys")
			}
			return nil
		},
		ValidArgsFunction: completeExport(flags),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if request.Path, request.Export, err = parseExport(args[0]); err != nil {
				return err
			}
			installation, workspace, err := openTarget(flags)
			if err != nil {
				return err
			}
			return Bind(cmd.Context(), installation, workspace, request, flags.Out, flags.ErrOut)
		},
	}
	flags.BindWorkspace(cmd.Flags())
	cmd.Flags().StringVar(&request.Name, "name", "", "Name of the APIBinding. That of the APIExport by default")
	cmd.Flags().DurationVar(&request.Timeout, "timeout", defaultTimeout, "How long to wait until it is bound")
	cmd.Flags().StringArrayVar(&request.Accept, "accept-permission-claim", nil, "Accept this claim of the export, RESOURCE.GROUP (configmaps.core). Can be repeated")
	cmd.Flags().StringArrayVar(&request.Reject, "reject-permission-claim", nil, "Reject this claim of the export, RESOURCE.GROUP (secrets.core). Can be repeated")
	cmd.Flags().BoolVar(&request.AcceptAll, "accept-all-permission-claims", false, "Accept whatever the export claims")
	cmd.Flags().BoolVar(&request.RejectAll, "reject-all-permission-claims", false, "Reject whatever the export claims")
	return cmd
}

// NewClaimsCommand returns "kubectl kcp claims". The caller binds the flags of the connection.
func NewClaimsCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claims",
		Short: "Show, accept and reject the permission claims of exports",
		Long: `Show and answer permission claims: what an export asks for in the workspace that it is bound into, beyond the objects
of its own APIs.`,
		Example: `  kubectl kcp claims get apibinding
  kubectl kcp claims accept cowboys --resource configmaps.core`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	get := &cobra.Command{
		Use:     "get",
		Short:   "Show claims and their answers",
		Example: "  kubectl kcp claims get apibinding",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	get.AddCommand(newListCommand(flags))
	cmd.AddCommand(get, newUpdateClaimsCommand(flags, "accept", accepted), newUpdateClaimsCommand(flags, "reject", rejected))
	return cmd
}

func newListCommand(flags *connection.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "apibinding [NAME]",
		Aliases: []string{"apibindings"},
		Short:   "Show the claims that APIBindings answer",
		Example: `  # of all bindings of the current workspace
  kubectl kcp claims get apibinding

  # of one binding of another workspace
  kubectl kcp claims get apibinding cowboys -w :root:org:consumer`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeBinding(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			installation, workspace, err := openTarget(flags)
			if err != nil {
				return err
			}
			return listClaims(cmd.Context(), installation, workspace, firstArg(args), flags.Out)
		},
	}
	flags.BindWorkspace(cmd.Flags())
	return cmd
}

func newUpdateClaimsCommand(flags *connection.Flags, verb, state string) *cobra.Command {
	o := claimOptions{state: state}
	cmd := &cobra.Command{
		Use:   verb + " APIBINDING",
		Short: map[string]string{accepted: "Accept", rejected: "Reject"}[state] + " claims of a bound export",
		Long: "Set the answer to permission claims of a bound export. Without --resource and --identity-hash all of them are meant.\n" +
			"A claim that the binding does not mention yet is added, with the verbs and the selector that the export proposes.\n" +
			"The verb \"*\" of an accepted claim becomes the verbs that the export claims.",
		Example: "  kubectl kcp claims " + verb + " cowboys --resource configmaps.core\n" +
			"  kubectl kcp claims " + verb + " cowboys",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completeBinding(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.binding = firstArg(args); o.binding == "" {
				return errors.New("error APIBinding name is missing")
			}
			installation, workspace, err := openTarget(flags)
			if err != nil {
				return err
			}
			return updateClaims(cmd.Context(), installation, workspace, o, flags.Out)
		},
	}
	flags.BindWorkspace(cmd.Flags())
	cmd.Flags().StringVar(&o.resource, "resource", "", "Only the claim for this resource, RESOURCE.GROUP (configmaps.core)")
	cmd.Flags().StringVar(&o.identityHash, "identity-hash", "", "Only claims for resources of this identity")
	return cmd
}

func firstArg(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// openTarget returns the installation of the current context and the workspace in it that the command acts on.
func openTarget(flags *connection.Flags) (*connection.Installation, logicalcluster.Path, error) {
	session, err := flags.Open()
	if err != nil {
		return nil, logicalcluster.Path{}, err
	}
	installation, err := session.Installation()
	if err != nil {
		return nil, logicalcluster.Path{}, err
	}
	workspace, err := flags.Workspace(installation.Path)
	return installation, workspace, err
}
