package kubeconfig

import (
	"context"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/shardclient"
	"github.com/atoll-dev/atoll/controllers/status"
)

// reasonForbidden is the reason for a workspace to which access is forbidden. The response for a workspace that does not exist is the
// same.
const reasonForbidden = "WorkspaceForbidden"

// formerGroupPeriod starts with the validity of the certificate.
const formerGroupPeriod = 10 * time.Minute

// bindings are the ClusterRoleBindings of one workspace.
type bindings struct {
	client rbacclient.ClusterRoleBindingInterface
	// keepFormer is true while programs may use a certificate with the previous group.
	keepFormer bool
}

// withBindings calls do with the bindings of a workspace and returns the result for the condition.
func (s *scope) withBindings(ctx context.Context, workspace string, do func(bindings) error) status.Result {
	const condition = operatorv1alpha1.ConditionAuthorizationProvisioned
	config, httpClient, err := shardclient.New(s.config.Cluster).Connect(ctx, s.target.root, s.target.operatorURL)
	if err != nil {
		return status.Wait(condition, "NoCredentials", "%s", shardclient.StableMessage(err))
	}
	defer httpClient.CloseIdleConnections()
	config.Host += "/clusters/" + workspace
	client, err := rbacclient.NewForConfigAndClient(config, httpClient)
	if err == nil {
		err = do(bindings{client: client.ClusterRoleBindings(), keepFormer: s.formerGroupTime() > 0})
	}
	if err == nil {
		return status.OK(condition, "Provisioned", "the bindings exist in workspace %s", workspace)
	}
	ctrl.LoggerFrom(ctx).Info("Failed to call the installation", "url", config.Host, "err", err)
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return status.Wait(condition, reasonForbidden, "workspace %s cannot be entered at %s: create it, or correct targetWorkspace", workspace, s.target.operatorURL)
	}
	return status.Wait(condition, "WorkspaceUnavailable", "workspace %s at %s: %s", workspace, s.target.operatorURL, shardclient.StableMessage(err))
}

func listOptions(k *operatorv1alpha1.Kubeconfig) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: operatorv1alpha1.LabelKubeconfig + "=" + string(k.UID)}
}

// reconcile creates, updates and deletes bindings according to the spec.
func (b bindings) reconcile(ctx context.Context, k *operatorv1alpha1.Kubeconfig) error {
	have, err := b.client.List(ctx, listOptions(k))
	if err != nil {
		return err
	}
	desired := desiredBindings(k)
	for _, binding := range have.Items {
		if !slices.ContainsFunc(desired, func(w rbacv1.ClusterRoleBinding) bool { return w.Name == binding.Name }) {
			if err := client.IgnoreNotFound(b.client.Delete(ctx, binding.Name, metav1.DeleteOptions{})); err != nil {
				return err
			}
		}
	}
	for i := range desired {
		if err := b.reconcileOne(ctx, k, have.Items, &desired[i]); err != nil {
			return err
		}
	}
	return nil
}

func (b bindings) reconcileOne(ctx context.Context, k *operatorv1alpha1.Kubeconfig, have []rbacv1.ClusterRoleBinding, desired *rbacv1.ClusterRoleBinding) error {
	at := slices.IndexFunc(have, func(h rbacv1.ClusterRoleBinding) bool { return h.Name == desired.Name })
	if at < 0 {
		_, err := b.client.Create(ctx, desired, metav1.CreateOptions{FieldManager: apply.FieldManager})
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		// It lost its label: adopt it.
		found, err := b.client.Get(ctx, desired.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		have, at = []rbacv1.ClusterRoleBinding{*found}, 0
	}
	current := have[at].DeepCopy()
	subjects := desired.Subjects
	if b.keepFormer {
		subjects = withFormerGroup(subjects, current.Subjects, k)
	}
	if equality.Semantic.DeepEqual(current.RoleRef, desired.RoleRef) && equality.Semantic.DeepEqual(current.Subjects, subjects) &&
		current.Labels[operatorv1alpha1.LabelKubeconfig] == desired.Labels[operatorv1alpha1.LabelKubeconfig] {
		return nil
	}
	current.Subjects = subjects
	if current.Labels == nil {
		current.Labels = map[string]string{}
	}
	current.Labels[operatorv1alpha1.LabelKubeconfig] = desired.Labels[operatorv1alpha1.LabelKubeconfig]
	_, err := b.client.Update(ctx, current, metav1.UpdateOptions{FieldManager: apply.FieldManager})
	return err
}

// remove deletes all bindings of a Kubeconfig. A deleted workspace has none.
func (b bindings) remove(ctx context.Context, k *operatorv1alpha1.Kubeconfig) error {
	have, err := b.client.List(ctx, listOptions(k))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	for _, binding := range have.Items {
		if err := client.IgnoreNotFound(b.client.Delete(ctx, binding.Name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	return nil
}

// desiredBindings bind each role to the group that only the certificate of this Kubeconfig is in.
func desiredBindings(k *operatorv1alpha1.Kubeconfig) []rbacv1.ClusterRoleBinding {
	roles := slices.Compact(slices.Sorted(slices.Values(k.Spec.Authorization.ClusterRoleBindings.ClusterRoles)))
	out := make([]rbacv1.ClusterRoleBinding, 0, len(roles))
	for _, role := range roles {
		out = append(out, rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{
				Name:   string(k.UID) + ":" + role,
				Labels: map[string]string{operatorv1alpha1.LabelKubeconfig: string(k.UID)},
			},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{groupSubject(pki.KubeconfigGroup(k))},
		})
	}
	return out
}

// formerGroupTime returns how long bindings keep the previous group. A new certificate reaches programs that mount the Secret only when
// kubelets have synchronized it.
func (s *scope) formerGroupTime() time.Duration {
	if s.report.Get(available).State != status.Satisfied || s.issuedAt.IsZero() {
		return formerGroupPeriod
	}
	return max(0, s.issuedAt.Add(formerGroupPeriod).Sub(s.now))
}

// withFormerGroup adds the group that earlier operators put into certificates, if a binding has it: until programs use a certificate with
// the new group, their user has the permissions of the previous one. Kubeconfigs of one name share it.
func withFormerGroup(desired, current []rbacv1.Subject, k *operatorv1alpha1.Kubeconfig) []rbacv1.Subject {
	if former := groupSubject("kubeconfig:" + k.Name); slices.Contains(current, former) {
		return append(slices.Clone(desired), former)
	}
	return desired
}

func groupSubject(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}
