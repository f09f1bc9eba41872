// Command devcluster starts and stops a one-node Kubernetes cluster on a Linux machine that has Go, root and Debian's
// packages, without Docker and without an image registry. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/hack/devcluster/cluster"
	"github.com/atoll-dev/atoll/hack/devcluster/toolchain"
	"github.com/atoll-dev/atoll/hack/release/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "devcluster:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "devcluster",
		Short: "A real Kubernetes for development and tests, without Docker",
		Long: `devcluster runs a one-node Kubernetes ` + toolchain.KubernetesVersion + ` with cert-manager on this machine: real pods, Services, DNS and
volumes. It needs root, Go and, where they are missing, Debian packages that it installs itself. The programs are built
from source once and cached outside the checkout. If you have a cluster, you do not need this: set KUBECONFIG.`,
		Example: `  devcluster up
  export KUBECONFIG=$(devcluster kubeconfig)
  devcluster build-image --name docker.io/local/atoll:dev --tar bin/atoll.tar bin/operator bin/kcp
  devcluster load-image bin/atoll.tar docker.io/local/atoll:dev
  devcluster down`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	var state string
	root.PersistentFlags().StringVar(&state, "state", "", "folder of the cluster's files (default: .devcluster in the checkout)")
	open := func() (*cluster.Cluster, error) { return openCluster(state) }
	root.AddCommand(newUpCommand(open), newBuildCommand(open), newDownCommand(open), newStatusCommand(open), newKubeconfigCommand(open), newLoadImageCommand(open), newBuildImageCommand())
	return root
}

type openFunc func() (*cluster.Cluster, error)

func newUpCommand(open openFunc) *cobra.Command {
	return &cobra.Command{
		Use:   "up",
		Short: "Bring the cluster up; does nothing where it is up",
		Long: `Builds what is missing, starts what does not run, and returns when pods can be deployed: the node is ready, DNS answers
and cert-manager runs. The first build takes minutes, a later start about twenty seconds.`,
		Example: "  devcluster up\n  devcluster up --state /var/tmp/cluster",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			if err := c.Up(cmd.Context()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "\nNext:\n  export KUBECONFIG=%s\n  export PATH=%s:$PATH\n  kubectl get nodes\n", c.Kubeconfig(), c.Tools.BinDir())
			return nil
		},
	}
}

func newBuildCommand(open openFunc) *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the programs of the cluster that are not cached, and start nothing",
		Long: `Builds what up would build first. Commands that need a program of the cluster, or compile the same packages, are faster after it. It
needs neither root nor Debian's packages.`,
		Example: "  devcluster build",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			return c.Tools.Build(cmd.Context(), c.Progress)
		},
	}
}

func newDownCommand(open openFunc) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "End the cluster and leave nothing behind; safe when it is not up",
		Long: `Ends exactly the processes and containers of this cluster and removes its mounts, bridge, iptables chains, cgroups and files.
The cached programs stay.`,
		Example: "  devcluster down",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			return c.Down(cmd.Context())
		},
	}
}

func newStatusCommand(open openFunc) *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Print what runs; exit code 1 if the cluster does not serve",
		Example: "  devcluster status && kubectl get pods -A",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			names, pids := c.ListProcesses()
			for i, name := range names {
				text := "not running"
				if pids[i] != 0 {
					text = fmt.Sprintf("pid %d", pids[i])
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%-24s %s\n", name, text)
			}
			if err := c.CheckHealth(cmd.Context()); err != nil {
				return fmt.Errorf("the cluster is not up: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%-24s %s\n%-24s %s\n", "kubeconfig", c.Kubeconfig(), "logs", c.Logs())
			return nil
		},
	}
}

func newKubeconfigCommand(open openFunc) *cobra.Command {
	return &cobra.Command{
		Use:     "kubeconfig",
		Short:   "Print the path of the administrator's kubeconfig",
		Example: "  export KUBECONFIG=$(devcluster kubeconfig)",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			if _, err := os.Stat(c.Kubeconfig()); err != nil {
				return fmt.Errorf("no cluster with state folder %s: bring it up first: %w", c.State, err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), c.Kubeconfig())
			return nil
		},
	}
}

func newLoadImageCommand(open openFunc) *cobra.Command {
	return &cobra.Command{
		Use:   "load-image TAR [NAME...]",
		Short: "Import a Docker-style image archive into the cluster",
		Long: `Imports all images of the archive. With names, fails unless the cluster has images of these names afterwards. Pods must name
the image canonically (docker.io/local/atoll:dev) and with imagePullPolicy IfNotPresent or Never.`,
		Example: "  devcluster load-image bin/atoll.tar docker.io/local/atoll:dev",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open()
			if err != nil {
				return err
			}
			if err := c.LoadImage(cmd.Context(), args[0], args[1:]...); err != nil {
				return err
			}
			c.Progress("loaded %s", strings.Join(args, " "))
			return nil
		},
	}
}

func newBuildImageCommand() *cobra.Command {
	o := image.Options{Platform: v1.Platform{OS: "linux", Architecture: runtime.GOARCH}, Created: time.Unix(0, 0).UTC(), OneLayer: true}
	var name, out, licenses string
	cmd := &cobra.Command{
		Use:   "build-image --name NAME --tar FILE (BINARY... | --root DIRECTORY)",
		Short: "Make an image archive of static binaries or of a directory: one layer, FROM scratch, non-root",
		Long: `Writes a Docker-style archive whose one layer holds the binaries at /, a /tmp and an /etc/passwd. The user is 65532. With a
single binary that is the entry point. With --root, the layer is that directory. The same files give the same bytes.`,
		Example: "  devcluster build-image --name docker.io/local/atoll:dev --tar bin/atoll.tar bin/operator bin/kcp bin/kcp-front-proxy",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Binaries = args
			if licenses != "" {
				var err error
				if o.Notices, err = os.ReadFile(licenses); err != nil {
					return err
				}
			}
			built, err := image.Build(o)
			if err != nil {
				return err
			}
			if err := image.WriteArchive(out, name, built); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s (%s)\n", out, name)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "canonical name of the image, with registry and tag")
	cmd.Flags().StringVar(&out, "tar", "", "file to write")
	cmd.Flags().StringVar(&o.Root, "root", "", "directory that becomes the root of the image")
	cmd.Flags().StringVar(&licenses, "licenses", "", "file with the licenses of what the binaries are made of, which the image has as /licenses.txt")
	cmd.Flags().IntVar(&o.User, "user", image.User, "user and group of containers")
	cmd.Flags().StringArrayVar(&o.Env, "env", nil, "NAME=value, an environment variable; may be repeated")
	cmd.Flags().StringArrayVar(&o.Entrypoint, "entrypoint", nil, "a word of the command of containers; may be repeated")
	for _, required := range []string{"name", "tar"} {
		if err := cmd.MarkFlagRequired(required); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return cmd
}

// openCluster returns the cluster of this checkout. It starts and writes nothing.
func openCluster(state string) (*cluster.Cluster, error) {
	checkout, err := findCheckout()
	if err != nil {
		return nil, err
	}
	if state == "" {
		state = filepath.Join(checkout, ".devcluster")
	}
	layout, err := cluster.NewLayout(state)
	if err != nil {
		return nil, err
	}
	tools, err := toolchain.New(filepath.Join(checkout, "hack", "devcluster"))
	if err != nil {
		return nil, err
	}
	start := time.Now()
	return &cluster.Cluster{Layout: layout, Tools: tools, Progress: func(format string, args ...any) {
		fmt.Printf("%6.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}}, nil
}

// findCheckout returns the directory that contains hack/devcluster, searching from the working directory upwards.
func findCheckout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "hack", "devcluster", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside a checkout: no folder above has hack/devcluster")
		}
		dir = parent
	}
}
