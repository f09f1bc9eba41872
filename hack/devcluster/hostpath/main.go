// Command hostpath is the storage provisioner of the development cluster: it creates a directory on the node for every
// claim of its class, and removes the directory with the claim. One node, no quota, no snapshots.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster")
	dir := flag.String("folder", "", "folder on the node that holds the volumes")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "hostpath:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, dir string) error {
	if dir == "" {
		return fmt.Errorf("--folder is required")
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("reading kubeconfig %q: %w", kubeconfig, err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting with kubeconfig %q: %w", kubeconfig, err)
	}
	return newProvisioner(client, dir).Run(ctx)
}
