package workspace

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

const pathHelp = `PATH works like the argument of cd, with ':' (or '/') between names:

  (none), ~   the home workspace        ~:a     a workspace below it
  .           print where you are       ..      the parent, ..:.. its parent
  -           the previous workspace    :       the first workspace of the current path
  a:b         relative                  :a:b    absolute, as in :root:a:b

Entering a workspace rewrites the kubeconfig context "workspace.kcp.io/current"; your own contexts stay as they are.`

// NewCommand returns "kubectl ws" with its sub-commands. The caller binds the flags of the connection, because the same
// command is a plugin of its own and a sub-command of "kubectl kcp".
func NewCommand(flags *connection.Flags) *cobra.Command {
	var short, interactive bool
	cmd := &cobra.Command{
		Use:     "workspace [PATH]",
		Aliases: []string{"ws", "workspaces"},
		Short:   "Move through workspaces, and show them",
		Long: "Move through the tree of workspaces and show where you are.\n\n" + pathHelp +
			"\n\nA workspace that is called like a sub-command is reached as .:NAME.",
		Example: `  # go to a workspace by its absolute path
  kubectl ws :root:org:team

  # go to a child, to the parent, and back
  kubectl ws team
  kubectl ws ..
  kubectl ws -

  # print the path alone, for scripts
  kubectl ws . --short

  # as an administrator of the installation: see its shards, and close one for new workspaces
  kubectl ws :admin
  kubectl annotate shard alpha experimental.core.kcp.io/unschedulable=true

  # show all workspaces below the current one
  kubectl ws tree`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: completePath(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if interactive {
				if len(args) > 0 {
					return errors.New("--interactive takes no argument")
				}
				return runBrowse(cmd, flags, short)
			}
			return runUse(cmd, flags, short, args)
		},
	}
	cmd.Flags().BoolVar(&short, "short", false, "Print only the path of the workspace")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "Pick the workspace in a full-screen browser")
	cmd.AddCommand(newUseCommand(flags), newCurrentCommand(flags), newTreeCommand(flags), newCreateContextCommand(flags))

	create := NewCreateCommand(flags)
	create.Deprecated = `use the stand-alone plugin "kubectl create workspace" instead.`
	cmd.AddCommand(create)
	return cmd
}

func runUse(cmd *cobra.Command, flags *connection.Flags, short bool, args []string) error {
	n, err := newNavigator(flags, short)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return n.home(cmd.Context())
	}
	return n.use(cmd.Context(), args[0])
}

func runBrowse(cmd *cobra.Command, flags *connection.Flags, short bool) error {
	n, err := newNavigator(flags, short)
	if err != nil {
		return err
	}
	return n.browse(cmd.Context())
}

func newNavigator(flags *connection.Flags, short bool) (*navigator, error) {
	session, err := flags.Open()
	if err != nil {
		return nil, err
	}
	return &navigator{IOStreams: flags.IOStreams, session: session, short: short}, nil
}

func newUseCommand(flags *connection.Flags) *cobra.Command {
	var short bool
	cmd := &cobra.Command{
		Use:               "use PATH",
		Aliases:           []string{"cd"},
		Short:             "Enter a workspace",
		Long:              "Enter a workspace.\n\n" + pathHelp,
		Example:           "  kubectl ws use :root:org\n  kubectl ws cd ..",
		ValidArgsFunction: completePath(flags),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cmd.Help()
			}
			return runUse(cmd, flags, short, args)
		},
	}
	cmd.Flags().BoolVar(&short, "short", false, "Print only the path of the workspace")
	return cmd
}

func newCurrentCommand(flags *connection.Flags) *cobra.Command {
	var short bool
	cmd := &cobra.Command{
		Use:               "current",
		Short:             "Print the current workspace",
		Example:           "  kubectl ws current\n  kubectl ws current --short",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, _ []string) error {
			n, err := newNavigator(flags, short)
			if err != nil {
				return err
			}
			return n.printCurrent()
		},
	}
	cmd.Flags().BoolVar(&short, "short", false, "Print only the path of the workspace")
	return cmd
}

func newTreeCommand(flags *connection.Flags) *cobra.Command {
	var style treeStyle
	var interactive bool
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Show the workspaces below the current one",
		Long: `Show the workspaces below the current one. Workspaces that are being deleted are left out; [m] marks a mount.
What you may not look into is shown without children, and a warning on stderr says why.`,
		Example: `  # the tree below the current workspace
  kubectl ws tree

  # the whole tree with full paths and phases
  kubectl ws tree -w :root --full --wide`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interactive {
				return runBrowse(cmd, flags, false)
			}
			n, err := newNavigator(flags, false)
			if err != nil {
				return err
			}
			return n.tree(cmd.Context(), flags, style)
		},
	}
	flags.BindWorkspace(cmd.Flags())
	cmd.Flags().BoolVarP(&style.full, "full", "f", false, "Show full paths instead of names")
	cmd.Flags().BoolVar(&style.wide, "wide", false, "Show the phases of the Workspace (ws) and of its LogicalCluster (lc)")
	cmd.Flags().BoolVarP(&interactive, "interactive", "i", false, "Browse the tree in full screen, from the top of the current path")
	return cmd
}

func newCreateContextCommand(flags *connection.Flags) *cobra.Command {
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "create-context [NAME]",
		Short: "Make a kubeconfig context of your own for the current workspace",
		Long: `Make a kubeconfig context (and cluster) for the current workspace and switch to it. It stays where it is while
"kubectl ws" moves on. Without a name it is called like the path of the workspace.`,
		Example:           "  kubectl ws create-context\n  kubectl ws create-context production --overwrite",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			n, err := newNavigator(flags, false)
			if err != nil {
				return err
			}
			return n.createContext(strings.Join(args, ""), overwrite)
		},
	}
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "Overwrite the context if it exists")
	return cmd
}

// NewCreateCommand returns "kubectl create workspace NAME". The caller binds the flags of the connection.
func NewCreateCommand(flags *connection.Flags) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a workspace",
		Long:  "Create a workspace below the current one and wait until it is ready.",
		Example: `  # create a workspace of the default type
  kubectl create workspace team

  # create one of a certain type and enter it
  kubectl create workspace team --type root:universal --enter

  # make sure that it exists, somewhere else than here
  kubectl create workspace team -w :root:org --ignore-existing

  # create it on a shard in Europe, with a context of its own
  kubectl create workspace team --location-selector region=europe --create-context team`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			n, err := newNavigator(flags, false)
			if err != nil {
				return err
			}
			return n.create(cmd.Context(), flags, o)
		},
	}
	flags.BindWorkspace(cmd.Flags())
	cmd.Flags().StringVar(&o.workspaceType, "type", "", "Type of the workspace: NAME, or PATH:NAME with an absolute path. The server picks one by default")
	cmd.Flags().BoolVar(&o.enter, "enter", false, "Enter the workspace when it is ready")
	cmd.Flags().BoolVar(&o.ignoreExisting, "ignore-existing", false, "Accept a workspace that exists already. A --type must be absolute then")
	cmd.Flags().StringVar(&o.locationSelector, "location-selector", "", "Label selector for the shard that holds the workspace, like region=europe")
	cmd.Flags().StringVar(&o.contextName, "create-context", "", "Create a kubeconfig context of this name for the workspace. It becomes the current one only with --enter")
	return cmd
}

// completePath completes the last name of a PATH with the workspaces that the user can see there.
func completePath(flags *connection.Flags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		if len(args) > 0 {
			return nil, directive
		}
		n, err := newNavigator(flags, true)
		if err != nil {
			return nil, directive
		}
		installation, err := n.session.Installation()
		if err != nil {
			return nil, directive
		}
		at := strings.LastIndexAny(toComplete, ":/") + 1
		parent, ok := completionParent(installation.Path, toComplete[:at])
		if !ok {
			return nil, directive
		}
		children, err := readChildren(cmd.Context(), installation, parent)
		if err != nil {
			return nil, directive
		}
		var names []cobra.Completion
		for _, child := range children {
			if name := child.path.Base(); strings.HasPrefix(name, toComplete[at:]) {
				names = append(names, toComplete[:at]+name)
			}
		}
		return names, directive
	}
}

// completionParent returns the workspace of an incomplete PATH, where typed is all up to its last separator. Home
// workspaces are not completed: completion must not create one.
func completionParent(current logicalcluster.Path, typed string) (logicalcluster.Path, bool) {
	if typed == "" {
		return current, true
	}
	t := parseTarget(typed[:len(typed)-1], "", false)
	switch t.move {
	case moveNone:
		return current, true
	case movePath:
		path, err := t.resolve(current, typed)
		return path, err == nil
	}
	return logicalcluster.Path{}, false
}
