package apiexport_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

var (
	widgets    = schema.GroupVersionResource{Group: "example.io", Version: "v1", Resource: "widgets"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// story is a provider on shard alpha whose API is consumed on shard beta. root is on a third shard, with the cache.
type story struct {
	shards                      map[string]*shardtesting.Shard
	provider, consumer, another string // logical clusters; another is one more on beta
}

// TestSharedAcrossShards is one story: each part goes on from where the one before left things.
func TestSharedAcrossShards(t *testing.T) {
	s := newStory(t)
	for _, part := range []struct {
		name string
		tell func(*testing.T, *story)
	}{
		{"who may bind there binds an export of another shard by its path", bindByPath},
		{"the slice of the provider lists the shards with consumers", sliceListsShards},
		{"the view on the consumer's shard is for who may act for the provider", viewOnTheConsumersShard},
		{"a claim is accepted, and shows what it covers", claimAccepted},
		{"the maximal permission policy of another shard bounds consumers", boundsOfAnotherShard},
		{"a policy of the provider judges objects on another shard", policyOfAnotherShard},
		{"a workspace gets the type and the default bindings that another shard has", typeOfAnotherShard},
		{"who initializes a type of another shard finds and finishes its workspaces", initializedFromAnotherShard},
		{"partitions are over all shards, and slices follow them", partitionsOverAllShards},
		{"who may no longer bind does not", permissionWithdrawn},
		{"a service account of the provider works on the consumer's shard", serviceAccountOfAnotherShard},
		{"an export of another shard becomes a default for who may bind it", defaultOfAnotherShard},
		{"while the provider's shard is away, consumers go on", providersShardAway},
		{"while root and the cache are away, consumers go on", cacheAway},
		{"an export that was deleted stays bound", exportDeleted},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.tell(t, s) }) {
			return
		}
	}
}

func newStory(t *testing.T) *story {
	root := shardtesting.Start(t)
	alpha := shardtesting.StartShard(t, root, "alpha")
	beta := shardtesting.StartShard(t, root, "beta", trusting(t, alpha))
	s := &story{shards: map[string]*shardtesting.Shard{"root": root, "alpha": alpha, "beta": beta}}
	masters := root.Client(t, root.Masters(t))
	for _, name := range []string{"alpha", "beta"} {
		shardtesting.Eventually(t, "shard "+name+" being ready", func(ctx context.Context) error {
			shard := &corev1alpha1.Shard{}
			if err := masters.Get(shardtesting.In(ctx, "root"), client.ObjectKey{Name: name}, shard); err != nil {
				return err
			}
			if !conditionsv1alpha1.IsTrue(shard, conditionsv1alpha1.Ready) {
				return fmt.Errorf("conditions %+v", shard.Status.Conditions)
			}
			return nil
		})
	}
	s.provider = shardtesting.NewWorkspace(t, masters, "root", "provider", shardtesting.OnShard("alpha")).Spec.Cluster
	s.consumer = shardtesting.NewWorkspace(t, masters, "root", "consumer", shardtesting.OnShard("beta")).Spec.Cluster
	s.another = shardtesting.NewWorkspace(t, masters, "root", "another", shardtesting.OnShard("beta")).Spec.Cluster
	shardtesting.NewExport(t, s.masters(t, "alpha"), s.provider, "widgets", widgets.GroupResource(), "Widget", func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{{
			GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"},
		}}
	})
	for _, cluster := range []string{s.consumer, s.another} {
		s.grant(t, "beta", cluster, "alice-rules", "cluster-admin", "alice")
	}
	return s
}

// trusting makes a shard accept service accounts of another one, which it asks for them as it would a front proxy.
func trusting(t *testing.T, other *shardtesting.Shard) func(*options.Options) {
	proxy := other.PeerKubeconfig(t)
	return func(o *options.Options) {
		o.Shard.ExternalLogicalClusterAdminKubeconfig = proxy
		o.Authentication.ServiceAccounts.KeyFiles = []string{filepath.Join(o.RootDirectory, "sa.key"), filepath.Join(other.Directory, "sa.key")}
	}
}

// masters returns a client of system:masters, as one of somebody else.
func (s *story) masters(t *testing.T, shard string) client.Client {
	return s.shards[shard].Client(t, s.shards[shard].Masters(t))
}

func (s *story) config(t *testing.T, shard, user string) *rest.Config {
	config := rest.CopyConfig(s.shards[shard].Masters(t))
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	return config
}

func (s *story) as(t *testing.T, shard, user string) client.Client {
	return s.shards[shard].Client(t, s.config(t, shard, user))
}

// grant binds a ClusterRole to a user.
func (s *story) grant(t *testing.T, shard, cluster, name, role, user string) {
	t.Helper()
	create(t, s.masters(t, shard), cluster, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

// permit makes a ClusterRole of one rule for a user, both under a name.
func (s *story) permit(t *testing.T, shard, cluster, name, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	create(t, s.masters(t, shard), cluster, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}})
	s.grant(t, shard, cluster, name, name, user)
}

func create(t *testing.T, c client.Client, cluster string, object client.Object) {
	t.Helper()
	if err := c.Create(shardtesting.In(t.Context(), cluster), object); err != nil {
		t.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.io/v1", "kind": "Widget", "metadata": map[string]any{"name": name, "namespace": "default"},
	}}
}

// widgets returns the widgets of a logical cluster as somebody sees them.
func (s *story) widgets(t *testing.T, shard, user, cluster string) dynamic.ResourceInterface {
	return dynamic.NewForConfigOrDie(shardtesting.At(s.config(t, shard, user), cluster)).Resource(widgets).Namespace("default")
}

// view returns a resource in the virtual workspace of the export, over all logical clusters of a shard.
func (s *story) view(t *testing.T, shard, user string, of schema.GroupVersionResource) dynamic.ResourceInterface {
	config := s.config(t, shard, user)
	config.Host = strings.TrimSuffix(config.Host, "/") + "/services/apiexport/" + s.provider + "/widgets/clusters/*"
	return dynamic.NewForConfigOrDie(config).Resource(of)
}

func eventuallyCreates(t *testing.T, resource dynamic.ResourceInterface, name string) {
	t.Helper()
	shardtesting.Eventually(t, "widget "+name+" is created", func(ctx context.Context) error {
		_, err := resource.Create(ctx, widget(name), metav1.CreateOptions{})
		return err
	})
}

// eventuallyForbids waits until a dry run is refused with a word.
func eventuallyForbids(t *testing.T, resource dynamic.ResourceInterface, name, word string) {
	t.Helper()
	shardtesting.Eventually(t, "widget "+name+" is refused", func(ctx context.Context) error {
		_, err := resource.Create(ctx, widget(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("it is created")
		}
		if !(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)) || !strings.Contains(err.Error(), word) {
			return err
		}
		return nil
	})
}

func bindingTo(path, name string) *apisv1alpha2.APIBinding {
	return &apisv1alpha2.APIBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apisv1alpha2.APIBindingSpec{Reference: apisv1alpha2.BindingReference{
			Export: &apisv1alpha2.ExportBindingReference{Path: path, Name: name},
		}},
	}
}

func waitBound(t *testing.T, c client.Client, cluster, name string) {
	t.Helper()
	shardtesting.Eventually(t, "binding "+name+" is bound", func(ctx context.Context) error {
		binding := &apisv1alpha2.APIBinding{}
		if err := c.Get(shardtesting.In(ctx, cluster), client.ObjectKey{Name: name}, binding); err != nil {
			return err
		}
		if binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("phase %q, conditions %+v", binding.Status.Phase, binding.Status.Conditions)
		}
		return nil
	})
}

func bindByPath(t *testing.T, s *story) {
	alice := s.as(t, "beta", "alice")
	binding := bindingTo("root:provider", "widgets")
	if err := alice.Create(shardtesting.In(t.Context(), s.consumer), binding.DeepCopy()); !apierrors.IsForbidden(err) {
		t.Fatalf("without permission in the export's workspace: %v", err)
	}
	s.permit(t, "alpha", s.provider, "binders", "alice", rbacv1.PolicyRule{
		Verbs: []string{"bind"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports"}, ResourceNames: []string{"widgets"},
	})
	shardtesting.Eventually(t, "the permission arrives", func(ctx context.Context) error {
		return alice.Create(shardtesting.In(ctx, s.consumer), binding.DeepCopy())
	})
	waitBound(t, alice, s.consumer, "widgets")
	eventuallyCreates(t, s.widgets(t, "beta", "alice", s.consumer), "first")
}

func sliceListsShards(t *testing.T, s *story) {
	s.waitSlice(t, "widgets", "beta")
	shardtesting.Bind(t, s.masters(t, "alpha"), s.provider, s.provider, "widgets")
	s.waitSlice(t, "widgets", "alpha", "beta")
	if err := s.masters(t, "alpha").Delete(shardtesting.In(t.Context(), s.provider), bindingTo("", "widgets")); err != nil {
		t.Fatal(err)
	}
	s.waitSlice(t, "widgets", "beta")
}

// waitSlice waits until a slice of the provider lists the addresses of shards, and no others.
func (s *story) waitSlice(t *testing.T, name string, shards ...string) {
	t.Helper()
	var want []string
	for _, name := range shards {
		shard := &corev1alpha1.Shard{}
		if err := s.masters(t, "root").Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: name}, shard); err != nil {
			t.Fatal(err)
		}
		want = append(want, strings.TrimSuffix(shard.Spec.VirtualWorkspaceURL, "/")+"/services/apiexport/"+s.provider+"/widgets")
	}
	slices.Sort(want)
	c := s.masters(t, "alpha")
	shardtesting.Eventually(t, "slice "+name, func(ctx context.Context) error {
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		if err := c.Get(shardtesting.In(ctx, s.provider), client.ObjectKey{Name: name}, slice); err != nil {
			return err
		}
		var got []string
		for _, endpoint := range slice.Status.APIExportEndpoints {
			got = append(got, endpoint.URL)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("got %v, want %v; conditions %+v", got, want, slice.Status.Conditions)
		}
		return nil
	})
}

func viewOnTheConsumersShard(t *testing.T, s *story) {
	view := s.view(t, "beta", "bob", widgets)
	if _, err := view.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("without permission in the export's workspace: %v", err)
	}
	s.permit(t, "alpha", s.provider, "operators", "bob", rbacv1.PolicyRule{
		Verbs: []string{"*"}, APIGroups: []string{"apis.kcp.io"}, Resources: []string{"apiexports/content"}, ResourceNames: []string{"widgets"},
	})
	s.grant(t, "alpha", s.provider, "bob-enters", "system:kcp:workspace:access", "bob")
	shardtesting.Eventually(t, "bob sees the widgets of consumers", func(ctx context.Context) error {
		return sees(ctx, view, "first")
	})
	if found, err := s.view(t, "alpha", "bob", widgets).List(t.Context(), metav1.ListOptions{}); err != nil || len(found.Items) != 0 {
		t.Errorf("a shard without consumers shows %v, %v", found, err)
	}
}

func sees(ctx context.Context, view dynamic.ResourceInterface, name string) error {
	found, err := view.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, item := range found.Items {
		if item.GetName() == name {
			return nil
		}
	}
	return fmt.Errorf("%d objects, none of them %s", len(found.Items), name)
}

func claimAccepted(t *testing.T, s *story) {
	alice := s.as(t, "beta", "alice")
	create(t, alice, s.consumer, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "shown", Namespace: "default"}})
	view := s.view(t, "beta", "bob", configMaps)
	if err := sees(t.Context(), view, "shown"); err == nil {
		t.Fatal("it is seen before the claim is accepted")
	}
	shardtesting.Eventually(t, "the claim is accepted", func(ctx context.Context) error {
		binding := &apisv1alpha2.APIBinding{}
		if err := alice.Get(shardtesting.In(ctx, s.consumer), client.ObjectKey{Name: "widgets"}, binding); err != nil {
			return err
		}
		binding.Spec.PermissionClaims = []apisv1alpha2.AcceptablePermissionClaim{{
			PermissionClaim: apisv1alpha2.PermissionClaim{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"}},
			Selector:        apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: apisv1alpha2.ClaimAccepted,
		}}
		return alice.Update(shardtesting.In(ctx, s.consumer), binding)
	})
	shardtesting.Eventually(t, "bob sees what alice shows", func(ctx context.Context) error { return sees(ctx, view, "shown") })
}

func (s *story) changeExport(t *testing.T, change func(*apisv1alpha2.APIExport)) {
	t.Helper()
	c := s.masters(t, "alpha")
	shardtesting.Eventually(t, "the export is changed", func(ctx context.Context) error {
		export := &apisv1alpha2.APIExport{}
		if err := c.Get(shardtesting.In(ctx, s.provider), client.ObjectKey{Name: "widgets"}, export); err != nil {
			return err
		}
		change(export)
		return c.Update(shardtesting.In(ctx, s.provider), export)
	})
}

func boundsOfAnotherShard(t *testing.T, s *story) {
	s.changeExport(t, func(export *apisv1alpha2.APIExport) {
		export.Spec.MaximalPermissionPolicy = &apisv1alpha2.MaximalPermissionPolicy{Local: &apisv1alpha2.LocalAPIExportPolicy{}}
	})
	mine := s.widgets(t, "beta", "alice", s.consumer)
	eventuallyForbids(t, mine, "bounded", "")
	s.permit(t, "alpha", s.provider, "bounds", "apis.kcp.io:binding:alice", rbacv1.PolicyRule{
		Verbs: []string{"get", "list", "create"}, APIGroups: []string{"example.io"}, Resources: []string{"widgets"},
	})
	eventuallyCreates(t, mine, "bounded")
	if err := mine.Delete(t.Context(), "bounded", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("what the provider does not permit: %v", err)
	}
}

func policyOfAnotherShard(t *testing.T, s *story) {
	c := s.masters(t, "alpha")
	create(t, c, s.provider, &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"example.io"}, APIVersions: []string{"v1"}, Resources: []string{"widgets"}},
				},
			}}},
			Validations: []admissionregistrationv1.Validation{{Expression: `!object.metadata.name.startsWith("bad")`, Message: "says the provider"}},
		},
	})
	create(t, c, s.provider, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "names"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: "names", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	})
	mine := s.widgets(t, "beta", "alice", s.consumer)
	eventuallyForbids(t, mine, "bad", "says the provider")
	eventuallyCreates(t, mine, "good")
}

func typeOfAnotherShard(t *testing.T, s *story) {
	create(t, s.masters(t, "alpha"), s.provider, &tenancyv1alpha1.WorkspaceType{
		ObjectMeta: metav1.ObjectMeta{Name: "equipped"},
		Spec: tenancyv1alpha1.WorkspaceTypeSpec{
			DefaultAPIBindings: []tenancyv1alpha1.APIExportReference{{Export: "widgets"}},
			Extend:             tenancyv1alpha1.WorkspaceTypeExtension{With: []tenancyv1alpha1.WorkspaceTypeReference{{Name: "universal", Path: "root"}}},
		},
	})
	// Below consumer, which is on beta; the new workspace is, too.
	s.permit(t, "alpha", s.provider, "users", "alice", rbacv1.PolicyRule{
		Verbs: []string{"use"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"}, ResourceNames: []string{"equipped"},
	})
	alice := s.as(t, "beta", "alice")
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "equipped"},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "equipped", Path: "root:provider"}},
	}
	shardtesting.OnShard("beta")(workspace)
	shardtesting.Eventually(t, "the type may be used", func(ctx context.Context) error {
		return alice.Create(shardtesting.In(ctx, s.consumer), workspace.DeepCopy())
	})
	cluster := shardtesting.WaitReady(t, s.masters(t, "beta"), s.consumer, "equipped").Spec.Cluster
	bindings := &apisv1alpha2.APIBindingList{}
	if err := s.masters(t, "beta").List(shardtesting.In(t.Context(), cluster), bindings); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(bindings.Items, func(binding apisv1alpha2.APIBinding) bool {
		return binding.Status.APIExportClusterName == s.provider && binding.Status.Phase == apisv1alpha2.APIBindingPhaseBound
	}) {
		t.Errorf("nothing of the provider is bound: %+v", bindings.Items)
	}
	shardtesting.Eventually(t, "the type tells of all shards", func(ctx context.Context) error {
		found := &tenancyv1alpha1.WorkspaceType{}
		if err := s.masters(t, "alpha").Get(shardtesting.In(ctx, s.provider), client.ObjectKey{Name: "equipped"}, found); err != nil {
			return err
		}
		if len(found.Status.VirtualWorkspaces) != 6 {
			return fmt.Errorf("addresses %+v", found.Status.VirtualWorkspaces)
		}
		return nil
	})
}

func initializedFromAnotherShard(t *testing.T, s *story) {
	create(t, s.masters(t, "alpha"), s.provider, &tenancyv1alpha1.WorkspaceType{
		ObjectMeta: metav1.ObjectMeta{Name: "prepared"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{Initializer: true},
	})
	s.permit(t, "alpha", s.provider, "initializers", "carol", rbacv1.PolicyRule{
		Verbs: []string{"initialize"}, APIGroups: []string{"tenancy.kcp.io"}, Resources: []string{"workspacetypes"}, ResourceNames: []string{"prepared"},
	})
	s.grant(t, "alpha", s.provider, "carol-enters", "system:kcp:workspace:access", "carol")
	workspace := &tenancyv1alpha1.Workspace{
		ObjectMeta: metav1.ObjectMeta{Name: "prepared"},
		Spec:       tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: "prepared", Path: "root:provider"}},
	}
	shardtesting.OnShard("beta")(workspace)
	shardtesting.Eventually(t, "the type is known", func(ctx context.Context) error {
		return s.masters(t, "beta").Create(shardtesting.In(ctx, s.consumer), workspace.DeepCopy())
	})
	clusters := corev1alpha1.SchemeGroupVersion.WithResource("logicalclusters")
	view := func(user, cluster string) dynamic.ResourceInterface {
		config := s.config(t, "beta", user)
		config.Host = strings.TrimSuffix(config.Host, "/") + "/services/initializingworkspaces/" + s.provider + ":prepared/clusters/" + cluster
		return dynamic.NewForConfigOrDie(config).Resource(clusters)
	}
	var name string
	shardtesting.Eventually(t, "carol sees the workspace", func(ctx context.Context) error {
		found, err := view("carol", "*").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(found.Items) != 1 {
			return fmt.Errorf("%d logical clusters wait", len(found.Items))
		}
		name = found.Items[0].GetAnnotations()["kcp.io/cluster"]
		return nil
	})
	if _, err := view("bob", "*").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("who may not initialize: %v", err)
	}
	done := []byte(`{"status":{"initializers":null}}`)
	if _, err := view("carol", name).Patch(t.Context(), corev1alpha1.LogicalClusterName, types.MergePatchType, done, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	shardtesting.WaitReady(t, s.masters(t, "beta"), s.consumer, "prepared")
}

func partitionsOverAllShards(t *testing.T, s *story) {
	c := s.masters(t, "alpha")
	create(t, c, s.provider, &topologyv1alpha1.PartitionSet{
		ObjectMeta: metav1.ObjectMeta{Name: "each"}, Spec: topologyv1alpha1.PartitionSetSpec{Dimensions: []string{"name"}},
	})
	var beta string
	shardtesting.Eventually(t, "one partition for each shard", func(ctx context.Context) error {
		found := &topologyv1alpha1.PartitionList{}
		if err := c.List(shardtesting.In(ctx, s.provider), found); err != nil {
			return err
		}
		for _, partition := range found.Items {
			if partition.Spec.Selector.MatchLabels["name"] == "beta" {
				beta = partition.Name
			}
		}
		if len(found.Items) != 3 {
			return fmt.Errorf("partitions %+v", found.Items)
		}
		return nil
	})
	for name, partition := range map[string]string{"for-beta": beta, "for-nobody": ""} {
		slice := &apisv1alpha1.APIExportEndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       apisv1alpha1.APIExportEndpointSliceSpec{APIExport: apisv1alpha1.ExportBindingReference{Name: "widgets"}, Partition: partition},
		}
		if name == "for-nobody" {
			create(t, c, s.provider, &topologyv1alpha1.Partition{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       topologyv1alpha1.PartitionSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"name": "root"}}},
			})
			slice.Spec.Partition = name
		}
		create(t, c, s.provider, slice)
	}
	s.waitSlice(t, "for-beta", "beta")
	s.waitSlice(t, "for-nobody")
}

func permissionWithdrawn(t *testing.T, s *story) {
	c := s.masters(t, "alpha")
	if err := c.Delete(shardtesting.In(t.Context(), s.provider), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "binders"}}); err != nil {
		t.Fatal(err)
	}
	alice := s.as(t, "beta", "alice")
	shardtesting.Eventually(t, "alice may no longer bind", func(ctx context.Context) error {
		err := alice.Create(shardtesting.In(ctx, s.another), bindingTo("root:provider", "widgets"), client.DryRunAll)
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w", errors.Join(errors.New("not refused"), err))
		}
		return nil
	})
}

func serviceAccountOfAnotherShard(t *testing.T, s *story) {
	c := s.masters(t, "alpha")
	create(t, c, s.provider, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: "default"}})
	create(t, c, s.provider, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "operator"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "operators"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "operator", Namespace: "default"}},
	})
	alpha := s.shards["alpha"]
	issued, err := alpha.Kubernetes(t, shardtesting.At(alpha.Masters(t), s.provider)).CoreV1().ServiceAccounts("default").
		CreateToken(t.Context(), "operator", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.shards["beta"].Masters(t))
	config.Host = strings.TrimSuffix(config.Host, "/") + "/services/apiexport/" + s.provider + "/widgets/clusters/*"
	config.BearerToken = issued.Status.Token
	view := dynamic.NewForConfigOrDie(config).Resource(widgets)
	shardtesting.Eventually(t, "the operator sees the widgets of consumers", func(ctx context.Context) error { return sees(ctx, view, "first") })
	config.BearerToken = issued.Status.Token + "x"
	if _, err := dynamic.NewForConfigOrDie(config).Resource(widgets).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token without a valid signature: %v", err)
	}
}

func defaultOfAnotherShard(t *testing.T, s *story) {
	of := func(name string) *tenancyv1alpha1.WorkspaceType {
		return &tenancyv1alpha1.WorkspaceType{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: tenancyv1alpha1.WorkspaceTypeSpec{
				DefaultAPIBindings: []tenancyv1alpha1.APIExportReference{{Path: "root:provider", Export: "widgets"}},
			},
		}
	}
	alice := s.as(t, "beta", "alice")
	if err := alice.Create(shardtesting.In(t.Context(), s.another), of("refused")); !apierrors.IsForbidden(err) {
		t.Fatalf("who may not bind: %v", err)
	}
	s.grant(t, "alpha", s.provider, "binders-again", "binders", "alice")
	shardtesting.Eventually(t, "alice may bind again", func(ctx context.Context) error {
		return alice.Create(shardtesting.In(ctx, s.another), of("allowed"))
	})
}

func providersShardAway(t *testing.T, s *story) {
	if err := s.shards["alpha"].Stop(); err != nil {
		t.Fatal(err)
	}
	mine := s.widgets(t, "beta", "alice", s.consumer)
	eventuallyCreates(t, mine, "without-provider")
	eventuallyForbids(t, mine, "bad", "says the provider")
	if err := mine.Delete(t.Context(), "without-provider", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("its bounds hold no more: %v", err)
	}
	shardtesting.Bind(t, s.masters(t, "beta"), s.another, "root:provider", "widgets")
	if err := sees(t.Context(), s.view(t, "beta", "bob", widgets), "without-provider"); err != nil {
		t.Errorf("bob sees no more: %v", err)
	}
}

func cacheAway(t *testing.T, s *story) {
	peer := s.shards["root"].Peer(t, "beta")
	for _, name := range []string{"root", "beta"} {
		if err := s.shards[name].Stop(); err != nil {
			t.Fatal(err)
		}
	}
	// A start with everything else away: what others had published is known from the last time.
	s.shards["beta"] = shardtesting.StartIn(t, s.shards["beta"].Directory, peer)
	mine := s.widgets(t, "beta", "alice", s.consumer)
	eventuallyCreates(t, mine, "without-root")
	eventuallyForbids(t, mine, "bad", "says the provider")
	if err := mine.Delete(t.Context(), "without-root", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the bounds of the provider hold no more: %v", err)
	}
	if err := sees(t.Context(), s.view(t, "beta", "bob", widgets), "without-root"); err != nil {
		t.Errorf("bob sees no more: %v", err)
	}
}

func exportDeleted(t *testing.T, s *story) {
	s.shards["root"] = shardtesting.StartIn(t, s.shards["root"].Directory)
	for _, name := range []string{"beta", "alpha"} {
		if name == "beta" {
			if err := s.shards[name].Stop(); err != nil {
				t.Fatal(err)
			}
		}
		s.shards[name] = shardtesting.StartShardIn(t, s.shards[name].Directory, s.shards["root"], name)
	}
	if err := s.masters(t, "alpha").Delete(shardtesting.In(t.Context(), s.provider), &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "widgets"}}); err != nil {
		t.Fatal(err)
	}
	c := s.masters(t, "beta")
	shardtesting.Eventually(t, "the binding says so", func(ctx context.Context) error {
		binding := &apisv1alpha2.APIBinding{}
		if err := c.Get(shardtesting.In(ctx, s.consumer), client.ObjectKey{Name: "widgets"}, binding); err != nil {
			return err
		}
		if !conditionsv1alpha1.IsFalse(binding, apisv1alpha2.APIExportValid) || binding.Status.Phase != apisv1alpha2.APIBindingPhaseBound {
			return fmt.Errorf("phase %q, conditions %+v", binding.Status.Phase, binding.Status.Conditions)
		}
		return nil
	})
	if _, err := s.widgets(t, "beta", "alice", s.consumer).Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
		t.Errorf("it is served no more: %v", err)
	}
}
