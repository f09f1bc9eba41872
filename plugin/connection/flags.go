// Package connection is the basis of every kubectl plugin of Atoll: the common flags, the kubeconfig of a command, the
// meaning of server URLs and -w paths, and clients for any logical cluster of that kubeconfig. It contains no command
// and prints nothing. It depends on client libraries and logical cluster paths, never on a server.
package connection

import (
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// Flags holds the flags of the connection, and the streams of a command.
type Flags struct {
	genericiooptions.IOStreams

	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	workspace  string
}

// NewFlags returns flags with no value set.
func NewFlags(streams genericiooptions.IOStreams) *Flags { return &Flags{IOStreams: streams} }

// Kubeconfig returns the value of --kubeconfig, "" if it is not set.
func (f *Flags) Kubeconfig() string { return f.kubeconfig }

// Bind adds --kubeconfig, kubectl's override flags and the logging flags. The override flags that change the user or
// the cluster of a context are omitted: a switch would not write them to the kubeconfig.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "Path to the kubeconfig file")

	names := clientcmd.RecommendedConfigOverrideFlags("")
	for _, dropped := range []*clientcmd.FlagInfo{
		&names.AuthOverrideFlags.ClientCertificate,
		&names.AuthOverrideFlags.ClientKey,
		&names.AuthOverrideFlags.Impersonate,
		&names.AuthOverrideFlags.ImpersonateUID,
		&names.AuthOverrideFlags.ImpersonateGroups,
		&names.ContextOverrideFlags.ClusterName,
		&names.Timeout,
	} {
		dropped.LongName = ""
	}
	names.ClusterOverrideFlags.APIServer.ShortName = "s" // as in kubectl
	clientcmd.BindOverrideFlags(&f.overrides, flags, names)

	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	logging.VisitAll(func(one *flag.Flag) {
		added := pflag.PFlagFromGoFlag(one)
		added.Hidden = one.Name != "v" // hidden: they would obscure the important flags in the help
		flags.AddFlag(added)
	})
}

// BindWorkspace adds -w/--workspace, for commands that act on a workspace without entering it.
func (f *Flags) BindWorkspace(flags *pflag.FlagSet) {
	flags.StringVarP(&f.workspace, "workspace", "w", "",
		"Act on this workspace: an absolute path (:root:a), or one relative to the current workspace (a:b, .., .)")
}

// Workspace returns the path that -w selects, relative to the current workspace, or the current one without -w.
func (f *Flags) Workspace(current logicalcluster.Path) (logicalcluster.Path, error) {
	if f.workspace == "" {
		return current, nil
	}
	relative, absolute := strings.CutPrefix(f.workspace, ":")
	if absolute {
		current = logicalcluster.Path{}
	}
	path, err := ResolvePath(current, relative)
	switch {
	case errors.Is(err, ErrAboveTreeRoot):
		return path, errors.New("cannot go above the root workspace")
	case err != nil:
		return path, fmt.Errorf("invalid workspace path: %s", f.workspace)
	}
	return path, nil
}
