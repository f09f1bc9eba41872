package kubeconfig

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
)

// callTimeout bounds every call into an installation: one that hangs must not hold a worker.
const callTimeout = 10 * time.Second

// reasonForbidden is given for a workspace that cannot be entered, which is the same as one that does not exist.
const reasonForbidden = "WorkspaceForbidden"

// bindings are the ClusterRoleBindings of one workspace.
type bindings struct {
	client rbacclient.ClusterRoleBindingInterface
}

// inWorkspace calls do with the bindings of a workspace and says what came of it.
func (r *Reconciler) inWorkspace(ctx context.Context, target *target, workspace string, do func(bindings) error) status.Finding {
	const condition = operatorv1alpha1.ConditionAuthorizationProvisioned
	config, httpClient, err := r.connection(ctx, target, workspace)
	if err != nil {
		var found *status.Error
		if errors.As(err, &found) {
			return found.Finding
		}
		return status.Wait(condition, "NoCredentials", "%v", err)
	}
	defer httpClient.CloseIdleConnections()
	client, err := rbacclient.NewForConfigAndClient(config, httpClient)
	if err == nil {
		err = do(bindings{client: client.ClusterRoleBindings()})
	}
	if err == nil {
		return status.OK(condition, "Provisioned", "the bindings exist in workspace %s", workspace)
	}
	ctrl.LoggerFrom(ctx).Info("call into the installation failed", "url", config.Host, "error", err.Error())
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return status.Wait(condition, reasonForbidden, "workspace %s cannot be entered at %s: create it, or correct targetWorkspace", workspace, target.operator)
	}
	return status.Wait(condition, "WorkspaceUnavailable", "workspace %s at %s: %s", workspace, target.operator, stableText(err))
}

// stableText says of an error what stays the same from one attempt to the next. Ports and request numbers are in the log.
func stableText(err error) string {
	var unknown x509.UnknownAuthorityError
	switch apiStatus := apierrors.APIStatus(nil); {
	case errors.As(err, &apiStatus):
		return apiStatus.Status().Message
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + callTimeout.String()
	case errors.As(err, &unknown):
		return "its certificate is signed by an unknown authority"
	}
	return "no connection; the attempt is repeated"
}

// connection authenticates as the operator. The transport is made for these few calls and dropped: a shared one would
// keep every certificate that ever was.
func (r *Reconciler) connection(ctx context.Context, target *target, workspace string) (*rest.Config, *http.Client, error) {
	const condition = operatorv1alpha1.ConditionAuthorizationProvisioned
	name, namespace := pki.OperatorCertificate(target.root), target.root.Namespace
	secret, err := apply.Get[corev1.Secret](ctx, r.Cluster, namespace, name)
	if err != nil {
		return nil, nil, err
	}
	if secret == nil {
		return nil, nil, status.Wait(condition, "NoCredentials", "waiting for certificate %s", name).AsError()
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, nil, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	cas, err := r.Cluster.BundleParts(ctx, condition, namespace, desired.CASecret(target.root, desired.ServerCA),
		&corev1.LocalObjectReference{Name: desired.CASecret(target.root, desired.RootCA)}, target.root.Spec.CABundleSecretRef)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cas)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // in-cluster names mean nothing to an egress proxy
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}}
	config := &rest.Config{Host: target.operator + "/clusters/" + workspace, UserAgent: apply.FieldManager}
	return config, &http.Client{Transport: transport, Timeout: callTimeout}, nil
}

func selector(k *operatorv1alpha1.Kubeconfig) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: operatorv1alpha1.LabelKubeconfig + "=" + string(k.UID)}
}

// provide makes the bindings be those the spec lists and no others.
func (b bindings) provide(ctx context.Context, k *operatorv1alpha1.Kubeconfig) error {
	have, err := b.client.List(ctx, selector(k))
	if err != nil {
		return err
	}
	wanted := wantedBindings(k)
	for _, binding := range have.Items {
		if !slices.ContainsFunc(wanted, func(w rbacv1.ClusterRoleBinding) bool { return w.Name == binding.Name }) {
			if err := ignoreNotFound(b.client.Delete(ctx, binding.Name, metav1.DeleteOptions{})); err != nil {
				return err
			}
		}
	}
	for i := range wanted {
		if err := b.provideOne(ctx, have.Items, &wanted[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b bindings) provideOne(ctx context.Context, have []rbacv1.ClusterRoleBinding, wanted *rbacv1.ClusterRoleBinding) error {
	at := slices.IndexFunc(have, func(h rbacv1.ClusterRoleBinding) bool { return h.Name == wanted.Name })
	if at < 0 {
		_, err := b.client.Create(ctx, wanted, metav1.CreateOptions{FieldManager: apply.FieldManager})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// It lost its label: take it back.
		found, err := b.client.Get(ctx, wanted.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, at = []rbacv1.ClusterRoleBinding{*found}, 0
	}
	current := have[at].DeepCopy()
	if equality.Semantic.DeepEqual(current.RoleRef, wanted.RoleRef) && equality.Semantic.DeepEqual(current.Subjects, wanted.Subjects) &&
		current.Labels[operatorv1alpha1.LabelKubeconfig] == wanted.Labels[operatorv1alpha1.LabelKubeconfig] {
		return nil
	}
	current.Subjects = wanted.Subjects
	if current.Labels == nil {
		current.Labels = map[string]string{}
	}
	current.Labels[operatorv1alpha1.LabelKubeconfig] = wanted.Labels[operatorv1alpha1.LabelKubeconfig]
	_, err := b.client.Update(ctx, current, metav1.UpdateOptions{FieldManager: apply.FieldManager})
	return err
}

// remove takes all bindings of a Kubeconfig away. A workspace that is gone took them with it.
func (b bindings) remove(ctx context.Context, k *operatorv1alpha1.Kubeconfig) error {
	have, err := b.client.List(ctx, selector(k))
	if err != nil {
		return ignoreNotFound(err)
	}
	for _, binding := range have.Items {
		if err := ignoreNotFound(b.client.Delete(ctx, binding.Name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	return nil
}

// wantedBindings bind the group that only this Kubeconfig's certificate is in to each role.
func wantedBindings(k *operatorv1alpha1.Kubeconfig) []rbacv1.ClusterRoleBinding {
	roles := slices.Compact(slices.Sorted(slices.Values(k.Spec.Authorization.ClusterRoleBindings.ClusterRoles)))
	out := make([]rbacv1.ClusterRoleBinding, 0, len(roles))
	for _, role := range roles {
		out = append(out, rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Name:   string(k.UID) + ":" + role,
				Labels: map[string]string{operatorv1alpha1.LabelKubeconfig: string(k.UID)},
			},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: pki.KubeconfigGroup(k)}},
		})
	}
	return out
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
