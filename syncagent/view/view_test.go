package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/internal/workspaces"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

func newResourceOf(group, version, kind, resource string) workspaces.Resource {
	return workspaces.Resource{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, Resource: resource, Namespaced: true, HasStatus: true}
}

func newCertificates() Published {
	return Published{
		Spec: &syncagentv1alpha1.PublishedResourceSpec{
			Filter: &syncagentv1alpha1.ResourceFilter{Resource: &metav1.LabelSelector{MatchLabels: map[string]string{"sync": "yes"}}},
			Related: []syncagentv1alpha1.RelatedResourceSpec{
				{Identifier: "secret", Origin: syncagentv1alpha1.RelatedResourceOriginService, Kind: "Secret"},
				{Identifier: "profile", Origin: syncagentv1alpha1.RelatedResourceOriginKcp, Group: "corp.io", Version: "v1", Resource: "profiles", Projection: &syncagentv1alpha1.RelatedResourceProjection{Group: "other"}},
			},
		},
		Service: newResourceOf("cert-manager.io", "v1", "Certificate", "certificates"), Workspace: newResourceOf("corp.io", "v1beta1", "Cert", "certs"),
	}
}

func TestDescribe(t *testing.T) {
	again := newCertificates()
	again.Workspace = newResourceOf("z.corp.io", "v1", "Certificate", "certificates")
	plain := Published{Spec: &syncagentv1alpha1.PublishedResourceSpec{}, Service: newResourceOf("db.io", "v1", "Database", "databases"), Workspace: newResourceOf("db.io", "v1", "Database", "databases")}
	const certificates = `{"group":"corp.io","resource":"certs","source":{"group":"cert-manager.io","kind":"Certificate","resource":"certificates","versions":{"v1beta1":"v1"}},"filter":{"resource":{"matchLabels":{"sync":"yes"}}}}`
	const databases = `{"group":"db.io","resource":"databases","source":{"group":"db.io","kind":"Database","resource":"databases"}}`
	for name, tc := range map[string]struct {
		published []Published
		want      string
	}{
		"nothing":                             {nil, `{}`},
		"a filter, versions and related ones": {[]Published{newCertificates()}, `{"resources":[` + certificates + `],"related":[{"group":"","resource":"secrets"},{"group":"corp.io","resource":"profiles"}]}`},
		"in any order":                        {[]Published{plain, newCertificates()}, `{"resources":[` + certificates + `,` + databases + `],"related":[{"group":"","resource":"secrets"},{"group":"corp.io","resource":"profiles"}]}`},
		"one source, published twice":         {[]Published{again, newCertificates()}, `{"resources":[` + certificates + `],"related":[{"group":"","resource":"secrets"},{"group":"corp.io","resource":"profiles"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			described := Describe(tc.published)
			for i := range described.Resources {
				if described.Resources[i].Revision == "" {
					t.Errorf("no revision in %+v", described.Resources[i])
				}
				described.Resources[i].Revision = ""
			}
			got, err := json.Marshal(described)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %s, %v, want %s", got, err, tc.want)
			}
			if _, err := Describe(tc.published).Encode(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A revision identifies one description: the names and the filter.
func TestRevision(t *testing.T) {
	same, filter, workspace := newCertificates(), newCertificates(), newCertificates()
	filter.Spec.Filter = nil
	workspace.Workspace.Group = "another.corp.io"
	for name, tc := range map[string]struct {
		other Published
		same  bool
	}{"the same": {same, true}, "another filter": {filter, false}, "another name in workspaces": {workspace, false}} {
		if got := Revision(tc.other) == Revision(newCertificates()); got != tc.same {
			t.Errorf("%s: the revision is the same: %v", name, got)
		}
	}
	if got := Describe([]Published{same}).Resources[0].Revision; got != Revision(same) {
		t.Errorf("the description has the revision %q", got)
	}
}

// patchCounter counts patches.
type patchCounter struct {
	client.Client
	patches int
}

func (c *patchCounter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	c.patches++
	return c.Client.Patch(ctx, object, patch, options...)
}

// TestPublishAndFind publishes a description in a workspace, and finds the resources in the view that a shard serves from it.
func TestPublishAndFind(t *testing.T) {
	shard := shardtesting.Start(t)
	provider := shard.NewWorkspace(t, "root", "provider").Spec.Cluster
	shard.NewExport(t, provider, "certs", schema.GroupResource{Group: "corp.io", Resource: "certs"}, "Cert", func(export *apisv1alpha2.APIExport) {
		export.Spec.PermissionClaims = []apisv1alpha2.PermissionClaim{{GroupResource: apisv1alpha2.GroupResource{Resource: "configmaps"}, Verbs: []string{"*"}}}
	})
	admin := shard.Client(t, shard.Masters(t))
	ctx := shardtesting.In(t.Context(), provider)
	for _, object := range []*rbacv1.ClusterRole{{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"sync"}, APIGroups: []string{apisv1alpha1.GroupName}, Resources: []string{"apiexports"}, ResourceNames: []string{"certs"}},
		{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}},
	}}} {
		if err := admin.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "agent"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agent"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "agent"}}}); err != nil {
		t.Fatal(err)
	}
	view := func(user string) discovery.DiscoveryInterface {
		config := rest.CopyConfig(shard.Masters(t))
		url, ok := URL(config.Host + "/services/apiexport/" + provider + "/certs")
		if !ok {
			t.Fatal("the endpoint has no view")
		}
		config.Host, config.Impersonate = url+"/clusters/*", rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		return discovery.NewDiscoveryClientForConfigOrDie(config)
	}
	certificates := newCertificates()
	certificates.Workspace.Version = "v1"
	shardtesting.Eventually(t, "the permission of the agent", func(context.Context) error {
		if _, err := Find(view("agent"), certificates.Service); !errors.Is(err, ErrNotServed) {
			return fmt.Errorf("without a description: %w", err)
		}
		return nil
	})
	if _, err := Find(view("stranger"), certificates.Service); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without the permission: %v", err)
	}
	maps := Published{Spec: &syncagentv1alpha1.PublishedResourceSpec{}, Service: newResourceOf("", "v1", "ConfigMap", "configmaps"), Workspace: newResourceOf("corp.io", "v1", "Map", "maps")}
	counted := &patchCounter{Client: admin}
	for range 2 {
		if err := Publish(ctx, counted, "certs", []Published{certificates, maps}); err != nil {
			t.Fatal(err)
		}
	}
	if counted.patches != 1 {
		t.Errorf("the same description is written %d times", counted.patches)
	}
	if err := Publish(ctx, admin, "missing", nil); err != nil {
		t.Errorf("an export that does not exist: %v", err)
	}
	shardtesting.Eventually(t, "the view serves the resource", func(context.Context) error {
		found, err := Find(view("agent"), certificates.Service)
		if err == nil && found != certificates.Service {
			err = fmt.Errorf("got %+v", found)
		}
		return err
	})
	if _, err := Find(view("agent"), maps.Service); !errors.Is(err, ErrNotServed) {
		t.Errorf("a claimed resource of the same name: %v", err)
	}
}
