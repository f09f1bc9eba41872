package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/atoll-dev/atoll/plugin/connection"
	"github.com/atoll-dev/atoll/plugin/follow"
)

// options are the flags of "kubectl kcp doctor".
type options struct {
	shardsKubeconfig, shardsContext            string
	hostKubeconfig, hostContext, hostNamespace string
	deep                                       bool
	maxWorkspaces                              int
	timeout                                    time.Duration
	limits                                     Limits
	output, bundle                             string
}

func (o options) hasShards() bool { return o.shardsKubeconfig != "" || o.shardsContext != "" }
func (o options) hasHost() bool   { return o.hostKubeconfig != "" || o.hostContext != "" }

func (o options) validate(args []string) error {
	switch {
	case len(args) > 0:
		return fmt.Errorf("got the argument %q, expected only flags", args[0])
	case o.output != "" && o.output != "json" && o.output != "yaml":
		return fmt.Errorf("--output is %q, expected json or yaml", o.output)
	case o.deep && !o.hasShards():
		return errors.New("--deep reads all logical clusters, which only shards answer: set --shards-kubeconfig, too")
	case o.hostNamespace != "" && !o.hasHost():
		return errors.New("--host-namespace has no effect without --host-kubeconfig or --host-context")
	case o.maxWorkspaces < 1:
		return fmt.Errorf("--max-workspaces must be at least 1, got %d", o.maxWorkspaces)
	case o.timeout <= 0:
		return fmt.Errorf("--timeout must be positive, got %s", o.timeout)
	case o.limits.Grace < 0:
		return fmt.Errorf("--grace must not be negative, got %s", o.limits.Grace)
	case o.limits.BackupAge <= 0:
		return fmt.Errorf("--max-backup-age must be positive, got %s", o.limits.BackupAge)
	}
	return nil
}

// Exit codes. Other errors than these have the second.
const (
	exitFindings = 1
	exitUnable   = 2
)

// exitError is an error with an exit code.
type exitError struct {
	error
	code int
}

// ExitCode returns the exit code of the program.
func (e *exitError) ExitCode() int { return e.code }

// Unwrap returns the error itself.
func (e *exitError) Unwrap() error { return e.error }

func unable(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{err, exitUnable}
}

// NewCommand returns "kubectl kcp doctor". The caller binds the flags of the connection.
func NewCommand(flags *connection.Flags) *cobra.Command {
	o := options{maxWorkspaces: 100, timeout: 2 * time.Minute, limits: Limits{Grace: 5 * time.Minute, BackupAge: 7 * 24 * time.Hour}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find what is wrong with an installation",
		Long: `Find what is wrong with an installation: servers, certificates, etcd, replication, moves, workspaces, exports and bindings. It only
reads. For administrators of the installation (group system:kcp:admin).

Through the front proxy, it reads the Shards and some workspaces from root downwards. With --shards-kubeconfig, whose user is in
system:masters of the shards, it asks each shard at the address of its Shard, and finds all that is wrong in their workspaces. With
--host-kubeconfig or --host-context it also reads the objects of the operator, Certificates and Backups. What is not checked is listed
with the reason.

Exit codes: 0 without errors among the findings, 1 with errors, 2 if the command is wrong or the user may not read the installation.`,
		Example: `  # what an administrator can see through the front proxy
  kubectl kcp doctor

  # everything, from a machine or pod that reaches the shards and the host cluster
  kubectl kcp doctor --shards-kubeconfig shards.kubeconfig --host-context host --deep

  # for programs
  kubectl kcp doctor -o json

  # for somebody who helps: names, states, times and addresses, and no text of tenants
  kubectl kcp doctor --bundle doctor.tar.gz`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return unable(err)
			}
			if o.deep && !cmd.Flags().Changed("timeout") {
				o.timeout = deepTimeout
			}
			ctx, stop := follow.WithInterrupt(cmd.Context())
			defer stop()
			return run(ctx, flags, o)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unable(err) })
	cmd.Flags().StringVar(&o.shardsKubeconfig, "shards-kubeconfig", "", "Kubeconfig of a member of system:masters on the shards. Its server is not used")
	cmd.Flags().StringVar(&o.shardsContext, "shards-context", "", "Context of --shards-kubeconfig, or of the usual kubeconfig")
	cmd.Flags().StringVar(&o.hostKubeconfig, "host-kubeconfig", "", "Kubeconfig of the cluster with the operator")
	cmd.Flags().StringVar(&o.hostContext, "host-context", "", "Context of --host-kubeconfig, or of the usual kubeconfig")
	cmd.Flags().StringVar(&o.hostNamespace, "host-namespace", "", "Read only this namespace of the host cluster")
	cmd.Flags().BoolVar(&o.deep, "deep", false, "Also compare all Workspaces with all logical clusters, and all bindings with their exports. Reads all of them")
	cmd.Flags().IntVar(&o.maxWorkspaces, "max-workspaces", o.maxWorkspaces, "How many workspaces to read through the front proxy, without --shards-kubeconfig")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "How long to read, by default 30m with --deep. Checks whose facts were not read in time are incomplete")
	cmd.Flags().DurationVar(&o.limits.Grace, "grace", o.limits.Grace, "How long something may be on its way before it is a finding")
	cmd.Flags().DurationVar(&o.limits.BackupAge, "max-backup-age", o.limits.BackupAge, "How old the last completed Backup may be")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json or yaml instead of a table")
	cmd.Flags().StringVar(&o.bundle, "bundle", "", "Also write an archive (tar.gz) with the facts to this file, which must not exist")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// deepTimeout is the default of --timeout with --deep, whose time grows with the installation.
const deepTimeout = 30 * time.Minute

func run(ctx context.Context, flags *connection.Flags, o options) (err error) {
	g, err := newGatherer(flags, o)
	if err != nil {
		return unable(err)
	}
	var archive *bundle
	if o.bundle != "" { // before minutes of reading
		if archive, err = createBundle(o.bundle); err != nil {
			return unable(err)
		}
		defer func() { err = errors.Join(err, unable(archive.close())) }()
	}
	reading, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	facts, err := g.read(reading)
	if err != nil {
		return unable(err)
	}
	report := Examine(facts, o.limits)
	if err := printReport(flags.Out, report, o.output); err != nil {
		return unable(err)
	}
	if archive != nil {
		if err := archive.write(report, facts); err != nil {
			return unable(err)
		}
		fmt.Fprintf(flags.ErrOut, "Wrote %s. It has names of workspaces and objects: check it before you pass it on.\n", o.bundle)
	}
	if report.Summary.Errors > 0 {
		return &exitError{errors.New(summaryLine(report)), exitFindings}
	}
	_, err = fmt.Fprintln(flags.ErrOut, summaryLine(report))
	return err
}

func newGatherer(flags *connection.Flags, o options) (*gatherer, error) {
	session, err := flags.Open()
	if err != nil {
		return nil, err
	}
	location, isAdmin := connection.AdminLocation(session.URL())
	if !isAdmin {
		if location, err = session.Location(); err != nil {
			return nil, err
		}
	}
	installation, err := session.InstallationAt(location)
	if err != nil {
		return nil, err
	}
	g := &gatherer{
		installation: installation, admin: session.Config(), hostNamespace: o.hostNamespace, deep: o.deep, maxWorkspaces: o.maxWorkspaces, grace: o.limits.Grace,
		progress: newProgress(flags.ErrOut),
	}
	if o.hasShards() {
		if g.shards, err = loadConfig(cmp.Or(o.shardsKubeconfig, flags.Kubeconfig()), o.shardsContext); err != nil {
			return nil, fmt.Errorf("loading the kubeconfig of the shards: %w", err)
		}
	}
	if o.hasHost() {
		if g.host, err = loadConfig(cmp.Or(o.hostKubeconfig, flags.Kubeconfig()), o.hostContext); err != nil {
			return nil, fmt.Errorf("loading the kubeconfig of the host cluster: %w", err)
		}
	}
	return g, nil
}

// loadConfig loads a context of a kubeconfig, or of the usual one if the file is "".
func loadConfig(file, context string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
}

// newProgress returns a function that prints lines to a terminal, and nothing elsewhere: scripts read errors there.
func newProgress(out io.Writer) func(string, ...any) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return func(string, ...any) {}
	}
	var mu sync.Mutex
	return func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, format+"...\n", args...)
	}
}
