// Package proxyserver brings up one proxy: a FrontProxy's or the internal one of a RootShard. They differ in names only,
// which package desired knows; whose condition it is, and what has to be there first, the caller says.
package proxyserver

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Reconcile applies everything of a proxy but its certificates and reports on its pods. Gates are the results about what
// it stands on. It returns the Deployment as it is now, or nil.
func Reconcile(ctx context.Context, cluster apply.Cluster, report *status.Report, conditionType string, root *operatorv1alpha1.RootShard, proxy desired.Proxy, image desired.Image, gates ...status.Result) (*appsv1.Deployment, error) {
	result, err := provide(ctx, cluster, report, conditionType, root, proxy, image, gates)
	return cluster.SettleWorkload(ctx, report, conditionType, root.Namespace, proxy.Server(), result, err)
}

func provide(ctx context.Context, cluster apply.Cluster, report *status.Report, conditionType string, root *operatorv1alpha1.RootShard, proxy desired.Proxy, image desired.Image, gates []status.Result) (status.Result, error) {
	config, err := desired.ProxyConfig(proxy)
	if err != nil {
		return status.Result{}, err
	}
	kubeconfig, err := desired.ProxyKubeconfig(proxy)
	if err != nil {
		return status.Result{}, err
	}
	for _, object := range []client.Object{desired.ProxyService(proxy), config, kubeconfig} {
		if err := cluster.Object(ctx, conditionType, object); err != nil {
			return status.Result{}, err
		}
	}
	if err := bundles(ctx, cluster, conditionType, root, proxy); err != nil {
		return status.Result{}, err
	}
	return cluster.Workload(ctx, report, conditionType, desired.ProxyDeployment(proxy, image), gates...)
}

// bundles merges the CAs whose clients the proxy accepts and, if there are CAs of backends, those it trusts.
func bundles(ctx context.Context, cluster apply.Cluster, conditionType string, root *operatorv1alpha1.RootShard, proxy desired.Proxy) error {
	merge := func(name, own string, refs ...*corev1.LocalObjectReference) error {
		return cluster.Bundle(ctx, conditionType, desired.Bundle(name, root.Namespace, proxy.SecretLabels(), proxy.Owner()), own, refs...)
	}
	if err := merge(desired.MergedClientCA(proxy.BundleOwner()), desired.CASecret(root, desired.ClientCA), proxy.ClientCABundleRefs()...); err != nil {
		return err
	}
	if proxy.CABundleRef() == nil {
		return nil
	}
	return merge(desired.MergedCABundle(proxy.BundleOwner()), desired.CASecret(root, desired.ServerCA), proxy.CABundleRef())
}
