package apiexport_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// exportEnv is a shard and a workspace of the test.
type exportEnv struct {
	*shardtesting.Shard
	client.Client
	t       testing.TB
	cluster string
}

func TestExports(t *testing.T) {
	failed := countFailedReconciles(t) // of the shards of other tests
	shard := shardtesting.Start(t)
	admin := shard.Client(t, shard.Admin(t))
	workspace := shard.NewWorkspace(t, "root", "fresh")
	testFreshExports(t, &exportEnv{Shard: shard, Client: admin, t: t, cluster: workspace.Spec.Cluster}) // before the others cause errors
	if now := countFailedReconciles(t); now > failed {
		t.Errorf("reconciling new exports failed %v times", now-failed)
	}
	for name, test := range map[string]func(*testing.T, *exportEnv){
		"an export gets an identity and a slice": testGeneratedIdentity,
		"an existing secret is used":             testExistingSecret,
		"an identity never changes":              testIdentityIsImmutable,
		"a deleted slice is recreated":           testEndpointSliceRecreation,
		"no slice with the skip annotation":      testSkipEndpointSlice,
		"the deprecated status requires a gate":  testURLsAreDisabledByDefault,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, subtest, _ := strings.Cut(t.Name(), "/")
			workspace := shard.NewWorkspace(t, "root", strings.ReplaceAll(subtest, "_", "-"))
			test(t, &exportEnv{Shard: shard, Client: admin, t: t, cluster: workspace.Spec.Cluster})
		})
	}
}

// testFreshExports checks that no slice of a new export is refused.
func testFreshExports(t *testing.T, s *exportEnv) {
	const count = 10
	for i := range count {
		s.createAll(newExport(fmt.Sprint("fresh-", i), nil))
	}
	for i := range count {
		s.waitForSlice(fmt.Sprint("fresh-", i))
	}
}

// countFailedReconciles returns how often the controller of exports of any shard of this process has failed.
func countFailedReconciles(t *testing.T) (failed float64) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "atoll_controller_reconciles_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			if text := series.String(); strings.Contains(text, `"apiexport"`) && strings.Contains(text, `"error"`) {
				failed += series.GetCounter().GetValue()
			}
		}
	}
	return failed
}

func (e *exportEnv) context() context.Context {
	return shardtesting.In(context.Background(), e.cluster)
}

func (e *exportEnv) createAll(objects ...client.Object) {
	e.t.Helper()
	for _, object := range objects {
		if err := e.Create(e.context(), object); err != nil {
			e.t.Fatal(err)
		}
	}
}

func newExport(name string, secret *corev1.SecretReference) *apisv1alpha2.APIExport {
	export := &apisv1alpha2.APIExport{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if secret != nil {
		export.Spec.Identity = &apisv1alpha2.Identity{SecretRef: secret}
	}
	return export
}

func newSecret(namespace, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

// waitForExport waits until an export satisfies the condition, and returns it.
func (e *exportEnv) waitForExport(name string, condition func(*apisv1alpha2.APIExport) error) *apisv1alpha2.APIExport {
	e.t.Helper()
	export := &apisv1alpha2.APIExport{}
	shardtesting.Eventually(e.t, "APIExport "+name, func(ctx context.Context) error {
		if err := e.Get(shardtesting.In(ctx, e.cluster), client.ObjectKey{Name: name}, export); err != nil {
			return err
		}
		if err := condition(export); err != nil {
			return fmt.Errorf("%w; status %+v", err, export.Status)
		}
		return nil
	})
	return export
}

func hasValidIdentity(export *apisv1alpha2.APIExport) error {
	if !conditionsv1alpha1.IsTrue(export, apisv1alpha2.APIExportIdentityValid) || export.Status.IdentityHash == "" {
		return errors.New("the identity is not valid")
	}
	return nil
}

// hasInvalidIdentity is satisfied by an export whose condition IdentityValid is False with this message.
func hasInvalidIdentity(message string) func(*apisv1alpha2.APIExport) error {
	return func(export *apisv1alpha2.APIExport) error {
		condition := conditionsv1alpha1.Get(export, apisv1alpha2.APIExportIdentityValid)
		if condition == nil || condition.Reason != apisv1alpha2.IdentityVerificationFailedReason || !strings.Contains(condition.Message, message) {
			return fmt.Errorf("condition is %+v", condition)
		}
		return nil
	}
}

func hashIdentity(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:])
}

func testGeneratedIdentity(t *testing.T, s *exportEnv) {
	s.createAll(newExport("widgets", nil))
	export := s.waitForExport("widgets", hasValidIdentity)
	reference := export.Spec.Identity.SecretRef
	if reference.Namespace != "kcp-system" || reference.Name != "widgets" {
		t.Errorf("the export refers to %+v", reference)
	}
	generated := &corev1.Secret{}
	if err := s.Get(s.context(), client.ObjectKey{Namespace: "kcp-system", Name: "widgets"}, generated); err != nil {
		t.Fatal(err)
	}
	key := string(generated.Data["key"])
	if raw, err := base64.RawURLEncoding.DecodeString(key); err != nil || len(raw) != 32 || len(key) != 43 || export.Status.IdentityHash != hashIdentity(key) {
		t.Errorf("a key of %d characters, %v; identity is %s", len(key), err, export.Status.IdentityHash)
	}
	slice := s.waitForSlice("widgets")
	if owner := slice.OwnerReferences; len(owner) != 1 || owner[0].UID != export.UID || owner[0].Kind != "APIExport" ||
		slice.Spec.APIExport != (apisv1alpha1.ExportBindingReference{Path: s.cluster, Name: "widgets"}) || len(slice.Status.APIExportEndpoints) > 0 {
		t.Errorf("the slice is %+v", slice)
	}
}

func (e *exportEnv) waitForSlice(name string) *apisv1alpha1.APIExportEndpointSlice {
	e.t.Helper()
	slice := &apisv1alpha1.APIExportEndpointSlice{}
	shardtesting.Eventually(e.t, "slice "+name, func(ctx context.Context) error {
		return e.Get(shardtesting.In(ctx, e.cluster), client.ObjectKey{Name: name}, slice)
	})
	return slice
}

func testExistingSecret(t *testing.T, s *exportEnv) {
	s.createAll(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kcp-system"}},
		newSecret("kcp-system", "found", map[string][]byte{"key": []byte("there before")}),
		newSecret("default", "given", map[string][]byte{"key": []byte("there before")}),
		newExport("found", nil),
		newExport("named", &corev1.SecretReference{Namespace: "default", Name: "given"}),
	)
	for _, name := range []string{"found", "named"} {
		if export := s.waitForExport(name, hasValidIdentity); export.Status.IdentityHash != hashIdentity("there before") {
			t.Errorf("identity of %s is %s", name, export.Status.IdentityHash)
		}
	}
}

func testIdentityIsImmutable(t *testing.T, s *exportEnv) {
	s.createAll(newExport("careful", &corev1.SecretReference{Namespace: "default", Name: "identity"}))
	s.waitForExport("careful", hasInvalidIdentity("default/identity was not found"))
	identitySecret := newSecret("default", "identity", map[string][]byte{"other": []byte("x")})
	s.createAll(identitySecret)
	s.waitForExport("careful", hasInvalidIdentity(`no key "key"`))
	updateSecret := func(data map[string][]byte) {
		t.Helper()
		identitySecret.Data = data
		if err := s.Update(s.context(), identitySecret); err != nil {
			t.Fatal(err)
		}
	}
	updateSecret(map[string][]byte{"key": []byte("first")})
	s.waitForExport("careful", hasValidIdentity)
	expectSameIdentity := func(condition func(*apisv1alpha2.APIExport) error) {
		t.Helper()
		if export := s.waitForExport("careful", condition); export.Status.IdentityHash != hashIdentity("first") {
			t.Errorf("the identity became %s", export.Status.IdentityHash)
		}
	}
	updateSecret(map[string][]byte{"key": []byte("second")})
	expectSameIdentity(hasInvalidIdentity("hash mismatch: "))
	updateSecret(map[string][]byte{"key": []byte("first")})
	expectSameIdentity(hasValidIdentity)
	if err := s.Delete(s.context(), identitySecret); err != nil {
		t.Fatal(err)
	}
	expectSameIdentity(hasInvalidIdentity("default/identity was not found"))
	s.createAll(newSecret("default", "identity", map[string][]byte{"key": []byte("first")}))
	expectSameIdentity(hasValidIdentity)
}

func testEndpointSliceRecreation(t *testing.T, s *exportEnv) {
	s.createAll(newExport("widgets", nil))
	slice := s.waitForSlice("widgets")
	if err := s.Delete(s.context(), slice); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "another slice", func(context.Context) error {
		if recreated := s.waitForSlice("widgets"); recreated.UID == slice.UID {
			return errors.New("it is the previous one")
		}
		return nil
	})
}

func testSkipEndpointSlice(t *testing.T, s *exportEnv) {
	export := newExport("shy", nil)
	export.Annotations = map[string]string{"apiexports.apis.kcp.io/skip-endpointslice": ""}
	s.createAll(export)
	s.waitForExport("shy", hasValidIdentity)
	s.createAll(newExport("later", nil)) // its status shows that the previous export was reconciled
	s.waitForSlice("later")
	slices := &apisv1alpha1.APIExportEndpointSliceList{}
	if err := s.List(s.context(), slices); err != nil || len(slices.Items) != 1 {
		t.Errorf("slices are %+v, %v", slices.Items, err)
	}
}

func testURLsAreDisabledByDefault(t *testing.T, s *exportEnv) {
	s.createAll(newExport("plain", nil))
	export := s.waitForExport("plain", hasValidIdentity)
	if len(export.Status.VirtualWorkspaces) > 0 || conditionsv1alpha1.Get(export, apisv1alpha2.APIExportVirtualWorkspaceURLsReady) != nil {
		t.Errorf("status is %+v", export.Status)
	}
}

func TestDeprecatedURLs(t *testing.T) {
	shard := shardtesting.Start(t, func(o *options.Options) {
		o.FeatureGates = append(o.FeatureGates, "EnableDeprecatedAPIExportVirtualWorkspacesUrls=true")
	})
	s := &exportEnv{Shard: shard, Client: shard.Client(t, shard.Admin(t)), t: t, cluster: shard.NewWorkspace(t, "root", "provider").Spec.Cluster}
	s.createAll(newExport("widgets", nil))
	s.waitForExport("widgets", func(export *apisv1alpha2.APIExport) error {
		urls := export.Status.VirtualWorkspaces
		if len(urls) != 1 || !strings.HasSuffix(urls[0].URL, "/services/apiexport/"+s.cluster+"/widgets") || !conditionsv1alpha1.IsTrue(export, apisv1alpha2.APIExportVirtualWorkspaceURLsReady) {
			return fmt.Errorf("URLs are %v", urls)
		}
		return nil
	})
}
