package syncer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/syncerview"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	group = "example.io"

	// Widgets are published as gadgets of the service cluster, and maps as its config maps.
	widgetsPath    = "/apis/example.io/v1/namespaces/default/widgets"
	gadgetsPath    = "/apis/service.io/v1beta1/namespaces/default/gadgets"
	allGadgetsPath = "/apis/service.io/v1beta1/gadgets"
	mapsPath       = "/apis/example.io/v1/namespaces/NAMESPACE/maps"
	allMapsPath    = "/api/v1/configmaps"
	profilesPath   = "/apis/example.io/v1/namespaces/default/profiles"
	secretsPath    = "/api/v1/namespaces/default/secrets"

	description = `{"resources":[
		{"group":"example.io","resource":"widgets","source":{"group":"service.io","kind":"Gadget","resource":"gadgets","versions":{"v1":"v1beta1"}},"filter":{"resource":{"matchLabels":{"sync":"yes"}}}},
		{"group":"example.io","resource":"maps","source":{"kind":"ConfigMap","resource":"configmaps"},"filter":{"namespace":{"matchExpressions":[{"key":"env","operator":"In","values":["prod"]}]}}}
	],"related":[{"group":"example.io","resource":"profiles"}]}`
)

// env is a provider on shard alpha whose API is consumed on shard beta; root is a third shard. The consumers have bound the
// export: one accepts its claims, the other rejects them; unbound has no binding.
type env struct {
	*testing.T
	shards                                  map[string]*shardtesting.Shard
	provider, accepting, rejecting, unbound string
}

func newEnv(t *testing.T) *env {
	root := shardtesting.Start(t)
	s := &env{T: t, shards: map[string]*shardtesting.Shard{"root": root, "alpha": shardtesting.StartShard(t, root, "alpha"), "beta": shardtesting.StartShard(t, root, "beta")}}
	root.WaitShards(t, "alpha", "beta")
	masters := root.Client(t, root.Masters(t))
	workspace := func(name, shard string) string {
		return shardtesting.NewWorkspace(t, masters, "root", name, shardtesting.OnShard(shard)).Spec.Cluster
	}
	s.provider = workspace("provider", "alpha")
	s.accepting, s.rejecting, s.unbound = workspace("accepting", "beta"), workspace("rejecting", "beta"), workspace("unbound", "beta")
	s.createExport()
	s.grant("agent", rbacv1.PolicyRule{Verbs: []string{"sync"}, APIGroups: []string{apisv1alpha2.GroupName}, Resources: []string{"apiexports"}, ResourceNames: []string{"things"}})
	s.grant("another-agent", rbacv1.PolicyRule{Verbs: []string{"sync"}, APIGroups: []string{apisv1alpha2.GroupName}, Resources: []string{"apiexports"}, ResourceNames: []string{"else"}})
	s.grant("reader", rbacv1.PolicyRule{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{apisv1alpha2.GroupName}, Resources: []string{"apiexports", "apiexports/content"}})
	for cluster, state := range map[string]apisv1alpha2.AcceptablePermissionClaimState{s.accepting: apisv1alpha2.ClaimAccepted, s.rejecting: apisv1alpha2.ClaimRejected} {
		shardtesting.Bind(t, s.masters("beta"), cluster, s.provider, "things", func(binding *apisv1alpha2.APIBinding) {
			for _, claim := range claims {
				binding.Spec.PermissionClaims = append(binding.Spec.PermissionClaims, apisv1alpha2.AcceptablePermissionClaim{
					PermissionClaim: claim, Selector: apisv1alpha2.PermissionClaimSelector{MatchAll: true}, State: state})
			}
		})
	}
	return s
}

var claims = []apisv1alpha2.PermissionClaim{
	{GroupResource: apisv1alpha2.GroupResource{Resource: "namespaces"}, Verbs: []string{"*"}},
	{GroupResource: apisv1alpha2.GroupResource{Resource: "secrets"}, Verbs: []string{"*"}},
}

func (e *env) createExport() {
	var more []apisv1alpha2.ResourceSchema
	for resource, kind := range map[string]string{"maps": "Map", "profiles": "Profile", "others": "Other"} {
		created := shardtesting.NewSchema("v1", schema.GroupResource{Group: group, Resource: resource}, kind)
		e.create("alpha", e.provider, created)
		more = append(more, apisv1alpha2.ResourceSchema{Name: resource, Group: group, Schema: created.Name, Storage: apisv1alpha2.ResourceSchemaStorage{CRD: &apisv1alpha2.ResourceSchemaStorageCRD{}}})
	}
	shardtesting.NewExport(e.T, e.masters("alpha"), e.provider, "things", schema.GroupResource{Group: group, Resource: "widgets"}, "Widget", func(export *apisv1alpha2.APIExport) {
		export.Annotations = map[string]string{syncerview.Annotation: description}
		export.Spec.Resources = append(export.Spec.Resources, more...)
		export.Spec.PermissionClaims = claims
	})
}

// grant grants a user rules in the workspace of the provider.
func (e *env) grant(user string, rules ...rbacv1.PolicyRule) {
	e.Helper()
	rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"access"}, NonResourceURLs: []string{"/"}})
	e.create("alpha", e.provider, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: rules})
	e.create("alpha", e.provider, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}}})
}

func (e *env) masters(shard string) client.Client {
	return e.shards[shard].Client(e.T, e.shards[shard].Masters(e.T))
}

func (e *env) create(shard, cluster string, object client.Object) {
	e.Helper()
	if err := e.masters(shard).Create(shardtesting.In(e.Context(), cluster), object); err != nil {
		e.Fatalf("creating %T %s: %v", object, object.GetName(), err)
	}
}

// withT returns the env for a subtest.
func (e *env) withT(t *testing.T) *env {
	copied := *e
	copied.T = t
	return &copied
}

// viewPath returns a path of the syncer's view of the env's export.
func (e *env) viewPath(cluster, path string) string {
	return "/services/syncer/" + e.provider + ":things/clusters/" + cluster + path
}

// response is an HTTP response.
type response struct {
	status int
	body   string
}

// send sends one request to shard beta, as masters or as a user whom they impersonate.
func (e *env) send(user, method, path, body string, headers ...string) response {
	e.Helper()
	got, content := shardtesting.Send(e, e.config("beta", user), method, path, body, headers...)
	return response{got.StatusCode, content}
}

func (e *env) open(ctx context.Context, shard, user, method, path, body string, headers ...string) *http.Response {
	e.Helper()
	return shardtesting.Open(ctx, e, e.config(shard, user), method, path, body, headers...)
}

func (e *env) config(shard, user string) *rest.Config {
	config := rest.CopyConfig(e.shards[shard].Masters(e.T))
	if user != "masters" {
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	}
	return config
}

// expect sends one request, checks the status and returns the body.
func (e *env) expect(status int, user, method, path, body string, headers ...string) string {
	e.Helper()
	got := e.send(user, method, path, body, headers...)
	if got.status != status {
		e.Errorf("%s %s as %s: %d, want %d: %.500s", method, path, user, got.status, status, got.body)
	}
	return got.body
}

// eventually is expect for results that controllers, caches or other shards delay.
func (e *env) eventually(status int, user, method, path, body string) {
	e.Helper()
	shardtesting.Eventually(e.T, fmt.Sprintf("%s %s as %s is %d", method, path, user, status), func(context.Context) error {
		if got := e.send(user, method, path, body); got.status != status {
			return fmt.Errorf("%d: %.500s", got.status, got.body)
		}
		return nil
	})
}

// newObject creates an object in a logical cluster as its owner does.
func (e *env) newObject(cluster, path, kind, name, metadata string) {
	e.Helper()
	body := `{"apiVersion":"example.io/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"` + metadata + `},"spec":{"size":1}}`
	e.eventually(http.StatusCreated, "masters", http.MethodPost, "/clusters/"+cluster+path, body)
}

// object is what tests read of an object.
type object struct {
	metav1.PartialObjectMetadata `json:",inline"`
	Status                       any `json:"status"`
}

// list lists objects as the agent and returns their names, sorted.
func (e *env) list(path string, headers ...string) (names []string, kinds map[string]bool) {
	e.Helper()
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Items           []object `json:"items"`
	}
	e.decode(e.expect(http.StatusOK, "agent", http.MethodGet, path, "", headers...), &list)
	kinds = map[string]bool{list.APIVersion + " " + list.Kind: true}
	for _, item := range list.Items {
		names = append(names, item.Name)
		kinds[item.APIVersion+" "+item.Kind] = true
	}
	slices.Sort(names)
	return names, kinds
}

func (e *env) decode(text string, into any) {
	e.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		e.Fatalf("%v: %.500s", err, text)
	}
}

// watchStream is an open watch of the agent.
type watchStream struct {
	*testing.T
	decoder *json.Decoder
	close   func()
}

func (e *env) watch(path string, headers ...string) *watchStream {
	e.Helper()
	ctx, cancel := context.WithCancel(e.Context())
	resp := e.open(ctx, "beta", "agent", http.MethodGet, path, "", headers...)
	e.Cleanup(func() { cancel(); _ = resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		e.Fatalf("watching %s: %d: %s", path, resp.StatusCode, body)
	}
	return &watchStream{e.T, json.NewDecoder(resp.Body), cancel}
}

// event is an event of a watch.
type event struct {
	Type   string
	Object object
}

func (w *watchStream) nextEvent() (next event, err error) {
	err = w.decoder.Decode(&next)
	return next, err
}

// next returns "<type> <apiVersion> <kind> <name>" of the next event.
func (w *watchStream) next() (string, error) {
	event, err := w.nextEvent()
	if err != nil {
		return "", err
	}
	return event.Type + " " + event.Object.APIVersion + " " + event.Object.Kind + " " + event.Object.Name, nil
}

// expect reads the next events, which must be the wanted ones.
func (w *watchStream) expect(wanted ...string) {
	w.Helper()
	for _, want := range wanted {
		if got, err := w.next(); err != nil || got != want {
			w.Fatalf("got event %q, %v, want %q", got, err, want)
		}
	}
}

// expectEnd reads events until the stream ends.
func (w *watchStream) expectEnd() {
	for {
		if _, err := w.next(); err != nil {
			return
		}
	}
}

// expectExpired reads events until the stream ends with an error, which must have clients list again.
func (w *watchStream) expectExpired() {
	w.Helper()
	last := ""
	for {
		next, err := w.next()
		if err != nil {
			if !strings.HasPrefix(last, "ERROR v1 Status") {
				w.Errorf("the watch ends with %q, %v", last, err)
			}
			return
		}
		last = next
	}
}
