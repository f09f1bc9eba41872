package shardserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"gopkg.in/go-jose/go-jose.v2/jwt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/internal/embeddedetcd"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// The logical clusters and the identity of the export in the fixture.
const (
	kcpAcme            = "2cynbfy2m0wtjqcs"
	kcpProvider        = "1k3lu4vpp2gd9u5n"
	kcpConsumer        = "3gfx8swnbhc0tb2p"
	kcpLeaving         = "2n7ym4b1w0k9xq6d"
	kcpCowboysIdentity = "78ca9fe71d9930d8a551461e1015f8401c47fe01bc30e3323e4e675cf1705cd9"
)

var cowboysResource = schema.GroupVersionResource{Group: "wildwest.dev", Version: "v1", Resource: "cowboys"}

// TestEtcdOfKCP: a shard that starts on the etcd of a kcp server serves everything in it, keeps identities, and continues what that
// server began. The fixture is written by hand.
func TestEtcdOfKCP(t *testing.T) {
	directory := t.TempDir()
	stored := readKCPFixture(t)
	fillEtcd(t, filepath.Join(directory, "etcd-server"), stored)
	configure := func(o *options.Options) { o.BatteriesIncluded = []string{"+user", "+workspace-types"} }
	shard := shardtesting.StartIn(t, directory, configure)
	if !t.Run("what had begun completes", func(t *testing.T) { testKCPProgress(t, shard) }) {
		return
	}
	t.Run("objects are served in their logical clusters", func(t *testing.T) { testKCPObjects(t, shard, stored) })
	t.Run("no key is lost or added", func(t *testing.T) { testKCPKeys(t, shard, stored) })
	t.Run("identities stay", func(t *testing.T) { testKCPIdentities(t, shard) })
	t.Run("permissions stay", func(t *testing.T) { testKCPPermissions(t, shard) })
	t.Run("tokens of service accounts stay valid", func(t *testing.T) {
		testKCPToken(t, shard, stored["/registry/core/serviceaccounts/"+kcpConsumer+"/default/default"].GetUID())
	})
	t.Run("objects can be written", func(t *testing.T) { testKCPWrites(t, shard) })
	if err := shard.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Run("a restart serves the same", func(t *testing.T) {
		again := shardtesting.StartIn(t, directory, configure)
		john := getCowboy(t, again, "root:acme:consumer", "john")
		if intent, _, _ := unstructured.NestedString(john.Object, "spec", "intent"); intent != "rest" {
			t.Errorf("john's intent is %q", intent)
		}
		again.NewWorkspace(t, kcpConsumer, "later")
	})
}

// readKCPFixture reads the objects of the fixture by their keys.
func readKCPFixture(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile("testdata/kcp-etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var contents map[string]map[string]any
	if err := yaml.UnmarshalStrict(raw, &contents); err != nil {
		t.Fatal(err)
	}
	objects := map[string]*unstructured.Unstructured{}
	for key, content := range contents {
		object := &unstructured.Unstructured{Object: content}
		if object.GetUID() == "" {
			object.SetUID(uuid.NewUUID())
		}
		object.SetCreationTimestamp(metav1.NewTime(time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)))
		objects[key] = object
	}
	return objects
}

// fillEtcd writes objects to a new etcd as a kcp server encodes them.
func fillEtcd(t *testing.T, directory string, objects map[string]*unstructured.Unstructured) {
	t.Helper()
	server, err := embeddedetcd.Start(t.Context(), embeddedetcd.Config{Directory: directory, UnsafeNoFsync: true, WALSizeBytes: 5000})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	tls, err := transport.TLSInfo{CertFile: server.CertFile, KeyFile: server.KeyFile, TrustedCAFile: server.CAFile}.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, TLS: tls})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	for key, object := range objects {
		if _, err := etcd.Put(t.Context(), key, string(encodeAsKCP(t, object))); err != nil {
			t.Fatal(err)
		}
	}
}

// encodeAsKCP encodes built-in kinds as protobuf, and custom resources, among them kcp's own kinds, as JSON.
func encodeAsKCP(t *testing.T, object *unstructured.Unstructured) []byte {
	t.Helper()
	kind := object.GroupVersionKind()
	if !legacyscheme.Scheme.Recognizes(kind) || strings.HasSuffix(kind.Group, ".kcp.io") {
		encoded, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return encoded
	}
	typed, err := legacyscheme.Scheme.New(kind)
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		t.Fatalf("%s %s: %v", kind.Kind, object.GetName(), err)
	}
	encoded, err := runtime.Encode(protobufserializer.NewSerializer(legacyscheme.Scheme, legacyscheme.Scheme), typed)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

// testKCPProgress waits until controllers have completed the deletion and the initialization in the fixture, and have processed
// all objects: an object with a missing owner is collected behind the others.
func testKCPProgress(t *testing.T, shard *shardtesting.Shard) {
	admin := shard.Client(t, shard.Admin(t))
	if got := shard.WaitReady(t, kcpAcme, "coming").Spec.Cluster; got != "0f5sx2m8rt1v4zkd" {
		t.Errorf("the workspace in initialization has the logical cluster %s", got)
	}
	shardtesting.Eventually(t, "the workspace in deletion ends", func(context.Context) error {
		if keys := shard.Keys(t, "/"+kcpLeaving+"/"); len(keys) > 0 {
			return fmt.Errorf("there are still %q", keys)
		}
		return nil
	})
	orphan := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "wildwest.dev/v1", Kind: "Cowboy", Name: "nemo", UID: "0d0e3f5c-8f5d-4b6c-93f1-1f1f5b9d2c01"},
	}}}
	in := shardtesting.In(t.Context(), kcpConsumer)
	if err := admin.Create(in, orphan); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "an object without an owner is collected", func(context.Context) error {
		if err := admin.Get(in, client.ObjectKeyFromObject(orphan), orphan); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there"), err)
		}
		return nil
	})
	shardtesting.Eventually(t, "the endpoint slice has the URL of the shard", func(ctx context.Context) error {
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		if err := admin.Get(shardtesting.In(ctx, kcpProvider), client.ObjectKey{Name: "cowboys"}, slice); err != nil {
			return err
		}
		for _, endpoint := range slice.Status.APIExportEndpoints {
			if strings.HasPrefix(endpoint.URL, shard.Masters(t).Host+"/") {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", slice.Status.APIExportEndpoints)
	})
}

// derivedFields are the fields that the shard sets by its own configuration and version.
var derivedFields = map[string][]string{
	"workspaces": {"spec"}, "shards": {"spec"}, "leases": {"spec"}, "workspacetypes": {"spec"}, "logicalclusters": {"status"},
}

func testKCPObjects(t *testing.T, shard *shardtesting.Shard, stored map[string]*unstructured.Unstructured) {
	for key, want := range stored {
		group, resource, cluster, ok := splitKCPKey(key)
		if !ok || isKCPLeaving(key) {
			continue
		}
		resourceClient := dynamic.NewForConfigOrDie(shardtesting.At(shard.Masters(t), cluster)).
			Resource(schema.GroupVersionResource{Group: group, Version: want.GroupVersionKind().Version, Resource: resource}).Namespace(want.GetNamespace())
		got, err := resourceClient.Get(t.Context(), want.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s: %v", key, err)
			continue
		}
		cached, err := resourceClient.Get(t.Context(), want.GetName(), metav1.GetOptions{ResourceVersion: "0"})
		if err != nil || cached.GetUID() != want.GetUID() {
			t.Errorf("%s in the watch cache: %v, %v", key, cached, err)
		}
		if got.GetUID() != want.GetUID() || got.GetAnnotations()["kcp.io/cluster"] != cluster || !got.GetCreationTimestamp().Time.Equal(want.GetCreationTimestamp().Time) {
			t.Errorf("%s is %v", key, got.Object["metadata"])
		}
		for _, field := range []string{"spec", "data", "rules", "subjects", "roleRef"} {
			if slices.Contains(derivedFields[resource], field) || want.GetName() == "kube-root-ca.crt" || cluster == "root" && group == "apis.kcp.io" {
				continue
			}
			if !includes(got.Object[field], want.Object[field]) {
				t.Errorf("%s: %s is %v, want %v", key, field, got.Object[field], want.Object[field])
			}
		}
	}
}

// splitKCPKey returns the parts of a key of the shard.
func splitKCPKey(key string) (group, resource, cluster string, ok bool) {
	rest, ok := strings.CutPrefix(key, etcdPrefix+"/")
	segments := strings.Split(rest, "/")
	if !ok || len(segments) < 4 {
		return "", "", "", false
	}
	group, resource, segments = segments[0], segments[1], segments[2:]
	if group == "core" {
		group = ""
	}
	if segments[0] == "customresources" || len(segments[0]) == len(kcpCowboysIdentity) {
		segments = segments[1:]
	}
	return group, resource, segments[0], true
}

// includes reports whether a value has all fields of another one with the same values.
func includes(got, want any) bool {
	fields, ok := want.(map[string]any)
	if !ok {
		return want == nil || reflect.DeepEqual(got, want) || includesElements(got, want)
	}
	found, _ := got.(map[string]any)
	for name, value := range fields {
		if !includes(found[name], value) {
			return false
		}
	}
	return true
}

func includesElements(got, want any) bool {
	found, ok := got.([]any)
	elements, isList := want.([]any)
	return ok && isList && slices.EqualFunc(found, elements, includes)
}

// testKCPKeys compares the keys of tenants with those of the fixture.
func testKCPKeys(t *testing.T, shard *shardtesting.Shard, stored map[string]*unstructured.Unstructured) {
	now := shard.Stored(t)
	for key := range stored {
		if _, ok := now[key]; !ok && !isKCPLeaving(key) {
			t.Errorf("%s is gone", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		_, known := stored[key]
		_, _, cluster, ok := splitKCPKey(key)
		if ok && !known && slices.Contains([]string{kcpAcme, kcpProvider, kcpConsumer}, cluster) && !expectedKCPKeys[key[strings.LastIndex(key, "/")+1:]] {
			t.Errorf("%s is new", key)
		}
	}
	// The Shard in root, and the one that the shard owns.
	for prefix, want := range map[string]int{"/registry/core/secrets/root/kcp-system/": 5, "/registry/core.kcp.io/shards/": 2} {
		if keys := shard.Keys(t, prefix); len(keys) != want {
			t.Errorf("%s has %q", prefix, keys)
		}
	}
}

// expectedKCPKeys are the names of objects that the fixture lacks in some namespaces, and that controllers therefore create.
var expectedKCPKeys = map[string]bool{"kube-root-ca.crt": true, "default": true}

func testKCPIdentities(t *testing.T, shard *shardtesting.Shard) {
	export := &apisv1alpha2.APIExport{}
	if err := shard.Client(t, shard.Admin(t)).Get(shardtesting.In(t.Context(), kcpProvider), client.ObjectKey{Name: "cowboys"}, export); err != nil {
		t.Fatal(err)
	}
	if export.Status.IdentityHash != kcpCowboysIdentity {
		t.Errorf("the identity of the export is %s", export.Status.IdentityHash)
	}
	for path, want := range map[string][]string{
		"/clusters/*/apis/wildwest.dev/v1/cowboys:" + kcpCowboysIdentity:                                 {"jane", "john"},
		"/services/apiexport/" + kcpProvider + "/cowboys/clusters/*/apis/wildwest.dev/v1/cowboys":        {"jane", "john"},
		"/services/apiexport/" + kcpProvider + "/cowboys/clusters/" + kcpConsumer + "/api/v1/configmaps": {"horse", "kube-root-ca.crt"},
	} {
		var list metav1.PartialObjectMetadataList
		getJSON(t, shard.Masters(t), path, &list)
		for _, name := range want {
			if !slices.ContainsFunc(list.Items, func(item metav1.PartialObjectMetadata) bool {
				return item.Name == name && item.Annotations["kcp.io/cluster"] == kcpConsumer
			}) {
				t.Errorf("%s has no %s: %v", path, name, list.Items)
			}
		}
	}
}

// testKCPPermissions: the roles that are stored in a logical cluster apply to it.
func testKCPPermissions(t *testing.T, shard *shardtesting.Shard) {
	for user, want := range map[string]int{"ada": http.StatusOK, "eve": http.StatusForbidden} {
		config := rest.CopyConfig(shardtesting.At(shard.Masters(t), "root:acme:consumer"))
		config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
		if got := getStatus(t, config, "/apis/wildwest.dev/v1/namespaces/default/cowboys/john"); got != want {
			t.Errorf("%s gets %d, want %d", user, got, want)
		}
	}
}

// testKCPToken uses a token as kcp issues it, with the key of the shard.
func testKCPToken(t *testing.T, shard *shardtesting.Shard, account types.UID) {
	key, err := keyutil.PrivateKeyFromFile(filepath.Join(shard.Directory, "sa.key"))
	if err != nil {
		t.Fatal(err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(options.DefaultIssuer, key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	token, err := generator.GenerateToken(t.Context(), &jwt.Claims{
		Subject: "system:serviceaccount:default:default", Audience: jwt.Audience{options.DefaultIssuer},
		IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(time.Hour)),
	}, map[string]any{"kubernetes.io": map[string]any{
		"clusterName": kcpConsumer, "namespace": "default", "serviceaccount": map[string]any{"name": "default", "uid": string(account)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(shard.Masters(t))
	config.BearerToken = token
	for path, want := range map[string]int{
		"/clusters/" + kcpConsumer + "/api/v1/namespaces/default/configmaps/horse": http.StatusOK,
		"/api/v1/namespaces/default/configmaps/horse":                              http.StatusOK,
		"/clusters/" + kcpConsumer + "/api/v1/namespaces/default/secrets/badge":    http.StatusForbidden,
	} {
		if got := getStatus(t, config, path); got != want {
			t.Errorf("%s: got %d, want %d", path, got, want)
		}
	}
}

func testKCPWrites(t *testing.T, shard *shardtesting.Shard) {
	in, admin := shardtesting.In(t.Context(), kcpConsumer), shard.Client(t, shard.Admin(t))
	cowboys := dynamic.NewForConfigOrDie(shardtesting.At(shard.Admin(t), kcpConsumer)).Resource(cowboysResource).Namespace("default")

	john := getCowboy(t, shard, kcpConsumer, "john")
	if err := unstructured.SetNestedField(john.Object, "rest", "spec", "intent"); err != nil {
		t.Fatal(err)
	}
	updated, err := cowboys.Update(t.Context(), john, metav1.UpdateOptions{})
	if err != nil || updated.GetGeneration() != 4 {
		t.Fatalf("the update of a bound object: %v, %v", updated, err)
	}
	if _, err := cowboys.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wildwest.dev/v1", "kind": "Cowboy", "metadata": map[string]any{"name": "jim"}, "spec": map[string]any{"intent": "help"},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	prefix := "/registry/wildwest.dev/cowboys/" + kcpCowboysIdentity + "/" + kcpConsumer + "/default/"
	if got := shard.Keys(t, "/wildwest.dev/cowboys/"); !slices.Equal(got, []string{prefix + "jane", prefix + "jim", prefix + "john"}) {
		t.Errorf("bound objects have the keys %q", got)
	}
	if err := cowboys.Delete(t.Context(), "jane", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cowboys.Patch(t.Context(), "jane", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cowboys.Get(t.Context(), "jane", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted object: %v", err)
	}

	// A change of nothing stores the logical cluster.
	const badge = "/registry/core/secrets/" + kcpConsumer + "/default/badge"
	if bytes.Contains(shard.Stored(t)[badge], []byte("kcp.io/cluster")) {
		t.Error("the secret was written before the test writes it")
	}
	if err := admin.Patch(in, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "badge"}}, client.RawPatch(types.MergePatchType, []byte(`{}`))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(shard.Stored(t)[badge], []byte("kcp.io/cluster")) {
		t.Error("the secret is stored without its logical cluster")
	}
	shard.NewWorkspace(t, kcpAcme, "new")
	shard.Bind(t, kcpAcme, "root:acme:provider", "cowboys")
}

func getCowboy(t *testing.T, shard *shardtesting.Shard, path, name string) *unstructured.Unstructured {
	t.Helper()
	cowboy, err := dynamic.NewForConfigOrDie(shardtesting.At(shard.Admin(t), path)).Resource(cowboysResource).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cowboy
}

// isKCPLeaving reports whether a key is deleted with the workspace in deletion.
func isKCPLeaving(key string) bool {
	return strings.Contains(key, "/"+kcpLeaving+"/") || strings.HasSuffix(key, "/"+kcpAcme+"/leaving")
}
