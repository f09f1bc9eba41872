// Command backend is an infrastructure provider with one backend: instances are files in a directory. It is a template for backends of
// your own; docs/infrastructure-backend.md goes through it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/instance"
)

const (
	group  = infrastructurev1alpha1.GroupName
	export = "files.example.org"
)

func main() {
	kubeconfig := pflag.String("kcp-kubeconfig", "", "kubeconfig for the workspace of the provider (required)")
	directory := pflag.String("directory", "instances", "directory of the files")
	pflag.Parse()
	if err := run(ctrl.SetupSignalHandler(), *kubeconfig, *directory); err != nil {
		fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

// run registers the backend, and runs the provider until the context ends.
func run(ctx context.Context, kubeconfig, directory string) error {
	if kubeconfig == "" {
		return errors.New("--kcp-kubeconfig is required: a kubeconfig for the workspace of the provider, as kubectl config view --raw --minify --flatten prints it there")
	}
	workspace, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("--kcp-kubeconfig: %w", err)
	}
	c, err := client.New(workspace, client.Options{Scheme: infrastructure.NewScheme(group)})
	if err != nil {
		return fmt.Errorf("connecting to the workspace of the provider: %w", err)
	}
	backends := &backend.Registry{}
	if err := backends.Register(newBackend(config{group: group, export: export, directory: directory, log: klog.Background()})); err != nil {
		return err
	}
	return infrastructure.Run(ctx, infrastructure.Config{
		Workspace: workspace, Backends: backends,
		Catalogue:      catalogue.Options{Group: group, Export: export, Binders: "system:authenticated"},
		Instances:      &instance.View{Workspace: workspace, Client: c, Export: export},
		MetricsAddress: "0", HealthAddress: "0", Log: klog.Background(),
	})
}
