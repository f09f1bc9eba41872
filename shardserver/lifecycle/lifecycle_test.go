package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

var inA = map[string]string{logicalcluster.AnnotationKey: "a"}

func TestNamespaceEvents(t *testing.T) {
	now := metav1.Now()
	namespace := func(change func(*core.Namespace)) *core.Namespace {
		n := &core.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: inA}, Spec: core.NamespaceSpec{Finalizers: []core.FinalizerName{core.FinalizerKubernetes}}}
		change(n)
		return n
	}
	namespaceKeys := []controller.Request{{ClusterName: logicalcluster.MustParseName("a"), Name: "n"}}
	for name, tc := range map[string]struct {
		event            watch.Event
		emptied, created []controller.Request
	}{
		"an active namespace gets its default objects": {
			event: watch.Event{Type: watch.Added, Object: namespace(func(*core.Namespace) {})}, created: namespaceKeys,
		},
		"a terminating namespace is emptied": {
			event: watch.Event{Type: watch.Modified, Object: namespace(func(n *core.Namespace) { n.DeletionTimestamp = &now })}, emptied: namespaceKeys,
		},
		"a finalized namespace with other finalizers is ignored": {
			event: watch.Event{Type: watch.Modified, Object: namespace(func(n *core.Namespace) { n.DeletionTimestamp, n.Spec.Finalizers = &now, nil })},
		},
		"a deleted namespace is ignored": {
			event: watch.Event{Type: watch.Deleted, Object: namespace(func(*core.Namespace) {})},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.emptied, terminatingKey(tc.event), cmp.Comparer(sameKey)); diff != "" {
				t.Errorf("terminating: %s", diff)
			}
			if diff := cmp.Diff(tc.created, mapActiveNamespace(tc.event), cmp.Comparer(sameKey)); diff != "" {
				t.Errorf("defaults: %s", diff)
			}
		})
	}
}

func sameKey(a, b controller.Request) bool { return a == b }

func TestTokenSecrets(t *testing.T) {
	account := &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "1"}}
	ca := []byte("CA")
	secret := func(change func(*core.Secret)) *core.Secret {
		s := &core.Secret{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{core.ServiceAccountNameKey: "s", core.ServiceAccountUIDKey: "1"}},
			Data: map[string][]byte{
				core.ServiceAccountTokenKey: []byte("t"), core.ServiceAccountRootCAKey: ca, core.ServiceAccountNamespaceKey: []byte("n"),
			},
		}
		change(s)
		return s
	}
	for name, tc := range map[string]struct {
		account *core.ServiceAccount
		secret  *core.Secret
		belongs bool
		missing missingData
	}{
		"a complete Secret is unchanged":         {account, secret(func(*core.Secret) {}), true, missingData{}},
		"an empty Secret lacks everything":       {account, secret(func(s *core.Secret) { s.Data = nil; delete(s.Annotations, core.ServiceAccountUIDKey) }), true, missingData{token: true, ca: true, namespace: true, uid: true}},
		"a changed CA is restored":               {account, secret(func(s *core.Secret) { s.Data[core.ServiceAccountRootCAKey] = []byte("x") }), true, missingData{ca: true}},
		"a Secret without an account is deleted": {nil, secret(func(*core.Secret) {}), false, missingData{}},
		"a Secret of an earlier account of the same name is deleted": {account, secret(func(s *core.Secret) {
			s.Annotations[core.ServiceAccountUIDKey] = "0"
		}), false, missingData{uid: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := belongs(tc.account, tc.secret); got != tc.belongs {
				t.Errorf("belongs = %v", got)
			}
			if got := findMissing(tc.secret, account.UID, ca); got != tc.missing {
				t.Errorf("lacks %+v, want %+v", got, tc.missing)
			}
		})
	}
}

func TestHasBundle(t *testing.T) {
	bundle := []byte("CA")
	published := func(change func(*core.ConfigMap)) *core.ConfigMap {
		desired := rootCAConfigMap("n", bundle)
		c := &core.ConfigMap{ObjectMeta: desired.ObjectMeta, Data: desired.Data}
		change(c)
		return c
	}
	for name, tc := range map[string]struct {
		configMap *core.ConfigMap
		want      bool
	}{
		"as published":              {published(func(*core.ConfigMap) {}), true},
		"another bundle":            {published(func(c *core.ConfigMap) { c.Data[corev1.ServiceAccountRootCAKey] = "x" }), false},
		"an additional key":         {published(func(c *core.ConfigMap) { c.Data["more"] = "x" }), false},
		"description removed":       {published(func(c *core.ConfigMap) { c.Annotations = nil }), false},
		"a label of others is kept": {published(func(c *core.ConfigMap) { c.Labels = map[string]string{"a": "b"} }), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hasBundle(tc.configMap, bundle); got != tc.want {
				t.Errorf("publishes = %v", got)
			}
		})
	}
}

// collections is a store that can delete collections; single one that cannot.
type (
	collectionStore struct {
		storage.Store
		rest.CollectionDeleter
	}
	singleDeleteStore struct{ storage.Store }
)

func TestResourceLists(t *testing.T) {
	resource := func(group, version, name string, namespaced, deletable bool, store storage.Store) *storage.Resource {
		return &storage.Resource{GVR: schema.GroupVersionResource{Group: group, Version: version, Resource: name}, Namespaced: namespaced, Deletable: deletable, Store: store}
	}
	got := resourceLists([]*storage.Resource{
		resource("", "v1", "configmaps", true, true, collectionStore{}),
		resource("", "v1", "namespaces", false, true, collectionStore{}),
		resource("", "v1", "secrets", true, true, singleDeleteStore{}),
		resource("x.io", "v1", "fixed", true, false, collectionStore{}),
		resource("y.io", "v1", "things", true, true, collectionStore{}),
	})
	all, one := metav1.Verbs{"list", "delete", "deletecollection"}, metav1.Verbs{"list", "delete"}
	want := []*metav1.APIResourceList{
		{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Namespaced: true, Verbs: all}, {Name: "secrets", Namespaced: true, Verbs: one}}},
		{GroupVersion: "y.io/v1", APIResources: []metav1.APIResource{{Name: "things", Namespaced: true, Verbs: all}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestIgnoreTerminatingNamespace(t *testing.T) {
	terminating := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, err := range []error{terminating, apierrors.NewNotFound(schema.GroupResource{}, "x"), apierrors.NewAlreadyExists(schema.GroupResource{}, "x"), nil} {
		if got := ignoreTerminatingNamespace(err); got != nil {
			t.Errorf("%v", got)
		}
	}
	if ignoreTerminatingNamespace(apierrors.NewForbidden(schema.GroupResource{}, "x", nil)) == nil {
		t.Error("any other refusal is an error")
	}
}
