package services

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
)

// kubeconfigKey is the key of the kubeconfig in its Secret.
const kubeconfigKey = "kubeconfig"

// names are the names of the objects that the controller creates for a Service.
type names struct {
	namespace string
	// account is the name of the service account, its role and its binding.
	account string
	// kubeconfig and token are the names of Secrets.
	kubeconfig, token string
}

func namesOf(service *kdpcorev1alpha1.Service) names {
	n := names{namespace: metav1.NamespaceDefault, account: "sync-agent-" + service.Name, kubeconfig: service.Name + "-kubeconfig"}
	if ref := service.Spec.Kubeconfig; ref != nil {
		n.kubeconfig = ref.Name
		n.namespace = cmp.Or(ref.Namespace, n.namespace)
	}
	n.token = n.account + "-token"
	return n
}

// holder returns the Service that has the API group: the one that is ready, or else the oldest.
func holder(group string, all []kdpcorev1alpha1.Service) *kdpcorev1alpha1.Service {
	var candidates []*kdpcorev1alpha1.Service
	for i := range all {
		if all[i].Spec.APIGroup == group {
			candidates = append(candidates, &all[i])
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	return slices.MinFunc(candidates, func(a, b *kdpcorev1alpha1.Service) int {
		return cmp.Or(
			cmp.Compare(later(a), later(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
		)
	})
}

func later(service *kdpcorev1alpha1.Service) int {
	if meta.IsStatusConditionTrue(service.Status.Conditions, kdpcorev1alpha1.ConditionReady) {
		return 0
	}
	return 1
}

// object is an object that the controller creates for a Service. fill sets the fields that the controller owns, and does not change
// others.
type object struct {
	client.Object
	fill func()
}

// desired returns all objects except the Secret with the kubeconfig, in the order of creation.
func desired(service *kdpcorev1alpha1.Service) []object {
	n := namesOf(service)
	export := &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: service.Name}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: n.account}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: n.account}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: n.account}}
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: n.token}}
	return []object{
		{export, func() { annotate(export, service) }}, // the agent writes its spec
		{account, func() {}},
		{role, func() { role.Rules = rules(service.Name) }},
		{binding, func() {
			binding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: n.account}
			binding.Subjects = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: n.namespace, Name: n.account}}
		}},
		{token, func() {
			token.Type = corev1.SecretTypeServiceAccountToken
			metav1.SetMetaDataAnnotation(&token.ObjectMeta, corev1.ServiceAccountNameKey, n.account)
		}},
	}
}

// annotate copies the catalogue entry to the export, for users who have access to exports only.
func annotate(export *apisv1alpha1.APIExport, service *kdpcorev1alpha1.Service) {
	catalog := service.Spec.CatalogMetadata
	for key, value := range map[string]string{
		kdpcorev1alpha1.APIGroupAnnotationKey:         service.Spec.APIGroup,
		kdpcorev1alpha1.TitleAnnotationKey:            catalog.Title,
		kdpcorev1alpha1.DescriptionAnnotationKey:      catalog.Description,
		kdpcorev1alpha1.DocumentationURLAnnotationKey: catalog.DocumentationURL,
		kdpcorev1alpha1.LogoAnnotationKey:             catalog.Logo,
	} {
		if value == "" {
			delete(export.Annotations, key)
			continue
		}
		metav1.SetMetaDataAnnotation(&export.ObjectMeta, key, value)
	}
}

// rules are the permissions that an agent needs in the workspace of its export. The verb sync grants access to the syncer's view.
func rules(export string) []rbacv1.PolicyRule {
	apis, read := []string{apisv1alpha1.SchemeGroupVersion.Group}, []string{"get", "list", "watch"}
	return []rbacv1.PolicyRule{
		{NonResourceURLs: []string{"/"}, Verbs: []string{"access"}},
		{APIGroups: []string{corev1alpha1.SchemeGroupVersion.Group}, Resources: []string{"logicalclusters"},
			ResourceNames: []string{corev1alpha1.LogicalClusterName}, Verbs: []string{"get"}},
		{APIGroups: apis, Resources: []string{"apiexportendpointslices"}, Verbs: read},
		{APIGroups: apis, Resources: []string{"apiexports"}, ResourceNames: []string{export}, Verbs: append(slices.Clone(read), "patch", "update", "sync")},
		{APIGroups: apis, Resources: []string{"apiexports/content"}, ResourceNames: []string{export}, Verbs: []string{"*"}},
		{APIGroups: apis, Resources: []string{"apiresourceschemas"}, Verbs: append(slices.Clone(read), "create", "patch", "update")},
		{APIGroups: []string{corev1.GroupName, eventsv1.GroupName}, Resources: []string{"events"}, Verbs: []string{"get", "create", "patch", "update"}},
	}
}

// Server is the address at which agents reach the workspace.
type Server struct {
	// URL is the URL of the workspace; it contains /clusters/.
	URL string
	// CA is the PEM bundle of its certificate authorities; if it is empty, agents use those of their system.
	CA []byte
}

// kubeconfigSecret returns the Secret for the agent.
func kubeconfigSecret(service *kdpcorev1alpha1.Service, server Server, token []byte) (object, error) {
	n := namesOf(service)
	const entry = "workspace"
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{entry: {Server: server.URL, CertificateAuthorityData: server.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{n.account: {Token: string(token)}},
		Contexts:       map[string]*clientcmdapi.Context{entry: {Cluster: entry, AuthInfo: n.account}},
		CurrentContext: entry,
	})
	if err != nil {
		return object{}, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: n.kubeconfig}}
	return object{secret, func() { secret.Data = map[string][]byte{kubeconfigKey: content} }}, nil
}
