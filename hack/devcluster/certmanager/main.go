// Command certmanager runs, in one process, the cert-manager controllers that a control plane's PKI needs: issuers and
// cluster issuers of the kinds CA and self-signed, the approver, and the certificate life cycle. It has no webhook, no
// ACME, no vault and no leader election: the development cluster runs exactly one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	crca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	crselfsigned "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/clusterissuers"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"         // registers the CA issuer
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned" // registers the self-signed issuer
)

// controllers are the names under which the imported packages registered themselves.
var controllers = []string{
	issuers.ControllerName,
	clusterissuers.ControllerName,
	approver.ControllerName,
	crca.CRControllerName,
	crselfsigned.CRControllerName,
	trigger.ControllerName,
	keymanager.ControllerName,
	requestmanager.ControllerName,
	issuing.ControllerName,
	readiness.ControllerName,
	revisionmanager.ControllerName,
}

// workers per controller; an installation's PKI is a few dozen certificates.
const workers = 2

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of the cluster whose certificates are managed")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(klog.NewContext(ctx, klog.Background()), *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "certmanager:", err)
		os.Exit(1)
	}
}

// run serves until the context ends. All controllers are built before the informers start, because building one
// requests its informers from the shared factories.
func run(ctx context.Context, kubeconfig string) error {
	factory, err := controller.NewContextFactory(ctx, options(kubeconfig))
	if err != nil {
		return fmt.Errorf("connecting with kubeconfig %q: %w", kubeconfig, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, name := range controllers {
		build, ok := controller.Known()[name]
		if !ok {
			return fmt.Errorf("controller %q is not registered by the cert-manager packages", name)
		}
		c, err := build(factory)
		if err != nil {
			return fmt.Errorf("building controller %q: %w", name, err)
		}
		group.Go(func() error {
			if err := c.Run(workers, ctx); err != nil {
				return fmt.Errorf("running controller %q: %w", name, err)
			}
			return nil
		})
	}
	shared, err := factory.Build()
	if err != nil {
		return fmt.Errorf("building the shared informers: %w", err)
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	return group.Wait()
}

// options are cert-manager's defaults, except that a failed request is retried after seconds instead of an hour: tests
// cause failures on purpose.
func options(kubeconfig string) controller.ContextOptions {
	return controller.ContextOptions{
		Kubeconfig:         kubeconfig,
		KubernetesAPIQPS:   100,
		KubernetesAPIBurst: 200,
		IssuerOptions:      controller.IssuerOptions{ClusterResourceNamespace: "cert-manager"},
		CertificateOptions: controller.CertificateOptions{
			CopiedAnnotationPrefixes:                 []string{"*", "-kubectl.kubernetes.io/", "-fluxcd.io/", "-argocd.argoproj.io/"},
			CertificateRequestMinimumBackoffDuration: 10 * time.Second,
			CertificateRequestMaximumBackoffDuration: time.Minute,
		},
	}
}
