// Package portal tests the portal of the infrastructure provider in Chromium, with a shard, the provider with the backend manifest, and
// its web server, which forwards to the shard as it would to a front proxy.
package portal

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	infrastructurev1alpha1 "github.com/atoll-dev/atoll/api/infrastructure/v1alpha1"
	"github.com/atoll-dev/atoll/infrastructure"
	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backends/manifest"
	"github.com/atoll-dev/atoll/infrastructure/catalogue"
	"github.com/atoll-dev/atoll/infrastructure/instance"
	"github.com/atoll-dev/atoll/infrastructure/portal"
	"github.com/atoll-dev/atoll/infrastructure/runtimecluster"
	"github.com/atoll-dev/atoll/infrastructure/web"
	"github.com/atoll-dev/atoll/internal/issuers/issuertest"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

const (
	group  = infrastructurev1alpha1.GroupName
	export = "infrastructure.providers.kedge.faros.sh"
)

// tokens are the users of the shard: ada administers the tenant, victor has read access only, nobody has no permissions, and olga administers
// the installation.
const tokens = `ada-token,ada,1
second-token,ada,1
victor-token,victor,2
nobody-token,nobody,3
operator-token,olga,4,"system:kcp:admin"
`

// The paths of workspaces. The provider's export is bound in the first.
const (
	tenant   = "root:tenant"
	unbound  = "root:tenant:unbound"
	provider = "root:provider"
)

//go:embed testdata/templates.yaml
var fixture string

// env is a provider with a portal, and a tenant.
type env struct {
	shard   *shardtesting.Shard
	issuer  *issuertest.Issuer
	signIn  *issuertest.SignIn
	gate    *gate
	url     string       // of the portal
	console string       // of a portal with the console
	door    *gate        // of that
	host    *rest.Config // of the workspace that is the host cluster of the installation for the console
	admin   client.Client
	cluster string // of the tenant
	tenant  dynamic.Interface
	browser *chromium.Browser

	templates []*infrastructurev1alpha1.Template
}

func newEnv(t *testing.T, templates []*infrastructurev1alpha1.Template) *env {
	browser := chromium.Start(t)
	issuer := issuertest.Start(t)
	directory := t.TempDir()
	tokenFile, issuerCA := filepath.Join(directory, "tokens.csv"), filepath.Join(directory, "issuer.crt")
	if err := errors.Join(os.WriteFile(tokenFile, []byte(tokens), 0o600), os.WriteFile(issuerCA, []byte(issuer.CA), 0o600)); err != nil {
		t.Fatal(err)
	}
	shard := shardtesting.Start(t, func(o *options.Options) {
		o.FeatureGates = []string{"CacheAPIs=true", options.GateLogicalClusterMigration + "=true"}
		o.UsageInterval = 200 * time.Millisecond
		o.Authentication.TokenFile.TokenFile = tokenFile
		oidc := o.Authentication.OIDC
		oidc.IssuerURL, oidc.ClientID, oidc.CAFile = issuer.URL, "portal", issuerCA
		oidc.UsernameClaim, oidc.UsernamePrefix, oidc.SigningAlgs = "sub", "oidc:", []string{"ES256"}
	})
	e := &env{shard: shard, issuer: issuer, browser: browser, templates: templates}
	e.signIn = issuer.EnableSignIn(t, "portal", map[string]any{"sub": "grace"}, time.Hour)
	e.startProvider(t, shard.NewWorkspace(t, "root", "provider").Spec.Cluster, shard.NewWorkspace(t, "root", "runtime").Spec.Cluster)
	e.host = shardtesting.At(shard.Admin(t), shard.NewWorkspace(t, "root", "host").Spec.Cluster)
	e.url, e.gate = e.serve(t, false, nil)
	e.console, e.door = e.serve(t, true, e.host)
	e.signIn.RedirectURI = e.url
	e.prepareTenant(t)
	return e
}

// startProvider runs the provider until the end of the test, and gives it templates.
func (e *env) startProvider(t *testing.T, cluster, runtimeCluster string) {
	workspace, runtime := shardtesting.At(e.shard.Admin(t), cluster), shardtesting.At(e.shard.Admin(t), runtimeCluster)
	var err error
	if e.admin, err = client.New(workspace, client.Options{Scheme: infrastructure.NewScheme(group)}); err != nil {
		t.Fatal(err)
	}
	runtimeClient, err := runtimecluster.NewClient(runtime)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(runtime)
	if err != nil {
		t.Fatal(err)
	}
	backends := &backend.Registry{}
	if err := backends.Register(manifest.New(runtimecluster.Config{Group: group, Export: export, Runtime: runtimeClient, Metadata: objects, Log: klog.Background()})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- infrastructure.Run(ctx, infrastructure.Config{
			Workspace: workspace, Catalogue: catalogue.Options{Group: group, Export: export, Binders: "system:authenticated"}, Backends: backends,
			Instances: &instance.View{Workspace: workspace, Client: e.admin, Export: export}, MetricsAddress: "0", HealthAddress: "0", Log: klog.Background(),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the provider ended: %v", err)
		}
	})
	for _, template := range e.templates {
		shardtesting.Eventually(t, "templates to be served", func(ctx context.Context) error { return e.admin.Create(ctx, template.DeepCopy()) })
	}
}

// readTemplates returns templates with all that forms can have, and one with markup in its texts.
func readTemplates(t *testing.T) []*infrastructurev1alpha1.Template {
	t.Helper()
	var all []*infrastructurev1alpha1.Template
	for document := range strings.SplitSeq(fixture, "\n---\n") {
		template := &infrastructurev1alpha1.Template{}
		if err := yaml.UnmarshalStrict([]byte(document), template); err != nil {
			t.Fatal(err)
		}
		all = append(all, template)
	}
	return all
}

// serve runs the web server of the provider with TLS, as it runs with a certificate, for a host cluster or none. It returns the address of the portal.
func (e *env) serve(t *testing.T, console bool, host *rest.Config) (string, *gate) {
	config := portal.Config{Group: group, Export: export, Workspace: provider, Console: console, Installation: host != nil, OIDC: portal.OIDC{IssuerURL: e.issuer.URL, ClientID: "portal"}}
	ui, err := portal.Handler(config)
	if err != nil {
		t.Fatal(err)
	}
	server := web.Config{FrontProxy: rest.AnonymousClientConfig(e.shard.Masters(t)), UI: ui, Limits: web.DefaultLimits(), Log: klog.Background()}
	if host != nil {
		server.Installation = &web.Installation{Host: host, Namespace: hostNamespace}
	}
	handler, err := web.NewHandler(t.Context(), server)
	if err != nil {
		t.Fatal(err)
	}
	gate := &gate{next: handler, closed: make(chan struct{})}
	listener := httptest.NewUnstartedServer(gate)
	listener.EnableHTTP2 = true
	listener.StartTLS()
	t.Cleanup(func() {
		gate.set(true) // ends watches
		listener.Close()
	})
	return listener.URL + portal.Path, gate
}

// prepareTenant creates the workspaces of the tenant and gives users their rights.
func (e *env) prepareTenant(t *testing.T) {
	e.cluster = e.shard.NewWorkspace(t, "root", "tenant").Spec.Cluster
	child := e.shard.NewWorkspace(t, e.cluster, "unbound").Spec.Cluster
	tenant, err := dynamic.NewForConfig(shardtesting.At(e.shard.Admin(t), e.cluster))
	if err != nil {
		t.Fatal(err)
	}
	e.tenant = tenant
	for user, role := range map[string]string{"ada": "cluster-admin", "oidc:grace": "cluster-admin", "victor": "look"} {
		for _, cluster := range []string{e.cluster, child} {
			e.grant(t, cluster, user, role)
		}
	}
	for _, template := range e.templates {
		shardtesting.Eventually(t, template.Name+" to be ready", func(ctx context.Context) error {
			if err := e.admin.Get(ctx, client.ObjectKeyFromObject(template), template); err != nil {
				return err
			}
			if !meta.IsStatusConditionTrue(template.Status.Conditions, infrastructurev1alpha1.ConditionReady) {
				return fmt.Errorf("conditions %+v", template.Status.Conditions)
			}
			return nil
		})
	}
	exported := &apisv1alpha2.APIExport{}
	if err := e.admin.Get(t.Context(), client.ObjectKey{Name: export}, exported); err != nil {
		t.Fatal(err)
	}
	e.shard.Bind(t, e.cluster, provider, export, func(binding *apisv1alpha2.APIBinding) {
		for _, claim := range exported.Spec.PermissionClaims {
			accepted := apisv1alpha2.AcceptablePermissionClaim{PermissionClaim: claim, Selector: *claim.DefaultSelector, State: apisv1alpha2.ClaimAccepted}
			accepted.DefaultSelector = nil
			binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, accepted)
		}
	})
}

// grant gives a user a role in a logical cluster. "look" may list and watch instances and templates.
func (e *env) grant(t *testing.T, cluster, user, role string) {
	t.Helper()
	c := e.shard.Client(t, e.shard.Admin(t))
	ctx := shardtesting.In(t.Context(), cluster)
	if role == "look" {
		rules := []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}}
		if err := c.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: rules}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{role, "system:kcp:workspace:access"} {
		if err := c.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// resource returns a client for a kind in the tenant's workspace, as its administrator.
func (e *env) resource(name string) dynamic.ResourceInterface {
	return e.tenant.Resource(schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: name})
}
