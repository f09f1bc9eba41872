package rootshard

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/status"
)

// etcd runs the store, where it is the operator's to run, and reports on its quorum.
func (r *Reconciler) etcd(ctx context.Context, s *scope) error {
	live, err := apply.Get[appsv1.StatefulSet](ctx, r.Cluster, s.root.Namespace, s.root.Name+"-etcd")
	if err != nil {
		return err
	}
	if !etcd.IsManaged(s.root) {
		// A StatefulSet of that name which is not this RootShard's is the user's own etcd.
		if live == nil || !ownedBy(live, s.root) {
			return nil
		}
		refusal := etcd.MayAbandon(live)
		s.store = status.Stall(operatorv1alpha1.ConditionEtcdAvailable, refusal.Reason, "%s", refusal.Message)
		s.report.Add(s.store)
		return nil
	}
	finding, err := r.reconcileEtcd(ctx, s, live)
	if err := apply.Settle(&s.report, finding, err); err != nil {
		return err
	}
	s.store = s.report.Find(operatorv1alpha1.ConditionEtcdAvailable)
	return nil
}

func (r *Reconciler) reconcileEtcd(ctx context.Context, s *scope, live *appsv1.StatefulSet) (status.Finding, error) {
	const condition = operatorv1alpha1.ConditionEtcdAvailable
	cluster := etcd.For(s.root)
	for _, service := range cluster.Services() {
		if err := r.Cluster.Object(ctx, condition, service); err != nil {
			return status.Finding{}, err
		}
	}
	if budget := cluster.DisruptionBudget(); budget != nil {
		if err := r.Cluster.Object(ctx, condition, budget); err != nil {
			return status.Finding{}, err
		}
	}
	wanted := cluster.StatefulSet(r.Image)
	if live != nil {
		if refusal := etcd.MayChange(live, wanted); refusal != nil {
			return status.Stall(condition, refusal.Reason, "%s", refusal.Message), nil
		}
	}
	revisions, missing, err := r.Cluster.Revisions(ctx, s.root.Namespace, desired.MountsOf(&wanted.Spec.Template.Spec))
	switch {
	case err != nil:
		return status.Finding{}, err
	case len(missing) > 0 && live == nil:
		return status.Wait(condition, "WaitingForCertificates", "etcd starts once its certificates are issued"), nil
	case len(missing) == 0:
		cluster.StampCA(wanted, revisions)
		if err := r.Cluster.Object(ctx, condition, wanted); err != nil {
			return status.Finding{}, err
		}
		live = wanted
	}
	return quorum(cluster, live), nil
}

// quorum reports on the members that are ready. Fewer than all but enough is no reason to hold up anything; members that
// are being replaced are: servers that restart meanwhile would find no store.
func quorum(cluster etcd.Cluster, live *appsv1.StatefulSet) status.Finding {
	const condition = operatorv1alpha1.ConditionEtcdAvailable
	ready, want := live.Status.ReadyReplicas, cluster.Members()
	switch {
	case live.Status.ObservedGeneration < live.Generation:
		return status.Wait(condition, "Updating", "StatefulSet %s is being updated", live.Name)
	case ready >= cluster.Quorum() && live.Status.UpdatedReplicas < want:
		return status.Wait(condition, "Updating", "%d of %d members run the newest revision", live.Status.UpdatedReplicas, want)
	case ready < cluster.Quorum():
		return status.Wait(condition, "NoQuorum", "%d of %d members are ready and %d are needed; see `kubectl -n %s describe pods -l app.kubernetes.io/component=etcd,app.kubernetes.io/instance=%s`",
			ready, want, cluster.Quorum(), live.Namespace, live.Labels["app.kubernetes.io/instance"])
	default:
		return status.OK(condition, "Quorum", "%d of %d members are ready", ready, want)
	}
}

// credentials are the Secrets that the server reads besides its certificates.
func (r *Reconciler) credentials(ctx context.Context, root *operatorv1alpha1.RootShard) error {
	const condition = operatorv1alpha1.ConditionAvailable
	kubeconfigs, err := desired.RootShardKubeconfigs(root)
	if err != nil {
		return err
	}
	for _, secret := range kubeconfigs {
		if err := r.Cluster.Object(ctx, condition, secret); err != nil {
			return err
		}
	}
	for _, bundle := range []struct {
		name string
		own  desired.CA
		ref  *corev1.LocalObjectReference
	}{
		{desired.MergedCABundle(root.Name), desired.ServerCA, root.Spec.CABundleSecretRef},
		{desired.MergedClientCA(root.Name), desired.ClientCA, root.Spec.ClientCABundleRef},
	} {
		if bundle.ref == nil {
			continue
		}
		pem, err := r.Cluster.BundleParts(ctx, condition, root.Namespace, desired.CASecret(root, bundle.own), bundle.ref)
		if err != nil {
			return err
		}
		labels := map[string]string{operatorv1alpha1.LabelRootShard: root.Name}
		if err := r.Cluster.Object(ctx, condition, desired.Bundle(bundle.name, root.Namespace, labels, desired.OwnedBy("RootShard", root), pem)); err != nil {
			return err
		}
	}
	return nil
}

// missingSource says which source of trust that the spec names is not there, or "".
func (r *Reconciler) missingSource(ctx context.Context, root *operatorv1alpha1.RootShard) (string, error) {
	if brought := desired.BroughtCA(root); brought != "" {
		secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, root.Namespace, brought)
		if err != nil {
			return "", err
		}
		if secret == nil || len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0 {
			return missingMessage("Secret", brought, root.Namespace, "caSecretRef") + " with a CA's tls.crt and tls.key", nil
		}
		return "", nil
	}
	issuer := root.Spec.Certificates.IssuerRef
	exists, err := r.Cluster.IssuerExists(ctx, root.Namespace, issuer)
	if err != nil || exists {
		return "", err
	}
	if issuer.Kind == "ClusterIssuer" {
		return missingMessage("ClusterIssuer", issuer.Name, "", "issuerRef"), nil
	}
	return missingMessage("Issuer", issuer.Name, root.Namespace, "issuerRef"), nil
}

func ownedBy(live *appsv1.StatefulSet, root *operatorv1alpha1.RootShard) bool {
	for _, owner := range live.OwnerReferences {
		if owner.UID == root.UID {
			return true
		}
	}
	return false
}
