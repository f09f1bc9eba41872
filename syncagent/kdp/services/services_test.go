package services_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	kdpcorev1alpha1 "github.com/atoll-dev/atoll/api/kdp/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestServices runs all subtests against one shard.
func TestServices(t *testing.T) {
	e := newEnv(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"a service becomes an export and a kubeconfig", testOffer},
		{"the agent has the rights of the contract, and no others", testRights},
		{"the agent serves a consumer", testConsumer},
		{"a deleted token is replaced and no longer valid", testRotation},
		{"an API group belongs to one service", testGroup},
		{"what belongs to others is left alone", testTaken},
		{"another Secret replaces the first", testMove},
		{"what was made goes with the service", testDeletion},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

func testOffer(t *testing.T, e *env) {
	service := e.create(t, "certificate-management", group, func(s *kdpcorev1alpha1.Service) {
		s.Spec.CatalogMetadata = kdpcorev1alpha1.CatalogMetadata{Title: "Certificate Management", Description: "Signed by the **internal** CA.", Logo: "data:,"}
	})
	e.expectReason(t, service.Name, kdpcorev1alpha1.ReasonOffered)
	export := e.export(t, service.Name)
	for key, want := range map[string]string{
		kdpcorev1alpha1.APIGroupAnnotationKey: group, kdpcorev1alpha1.TitleAnnotationKey: "Certificate Management",
		kdpcorev1alpha1.DescriptionAnnotationKey: "Signed by the **internal** CA.", kdpcorev1alpha1.LogoAnnotationKey: "data:,",
	} {
		if export.Annotations[key] != want {
			t.Errorf("annotation %s is %q, want %q", key, export.Annotations[key], want)
		}
	}
	if !metav1.IsControlledBy(export, service) {
		t.Error("the export has no owner reference")
	}
	if len(export.Spec.LatestResourceSchemas) > 0 {
		t.Error("the export has schemas; these are the agent's")
	}

	// A change of the catalogue entry does not overwrite what the agent has written, and removes the annotations of removed fields.
	export.Spec.PermissionClaims = []apisv1alpha1.PermissionClaim{{GroupResource: apisv1alpha1.GroupResource{Resource: "events"}, All: true}}
	if err := e.Update(t.Context(), export); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "changing the catalogue entry", func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
			return err
		}
		service.Spec.CatalogMetadata.Title, service.Spec.CatalogMetadata.Logo = "Certificates", ""
		return e.Update(ctx, service)
	})
	shardtesting.Eventually(t, "the export shows the new entry", func(context.Context) error {
		export := e.export(t, service.Name)
		_, logo := export.Annotations[kdpcorev1alpha1.LogoAnnotationKey]
		if export.Annotations[kdpcorev1alpha1.TitleAnnotationKey] != "Certificates" || logo {
			return fmt.Errorf("annotations are %v", export.Annotations)
		}
		if len(export.Spec.PermissionClaims) != 1 {
			t.Fatalf("claims are %v", export.Spec.PermissionClaims)
		}
		return nil
	})
	before := service.DeepCopy()
	service.Spec.APIGroup = "other.example.corp"
	if err := e.Patch(t.Context(), service, client.MergeFrom(before)); !apierrors.IsInvalid(err) {
		t.Errorf("changing the API group: %v", err)
	}
}

func testRights(t *testing.T, e *env) {
	ctx := t.Context()
	agent, err := e.agent(ctx, "default", "certificate-management-kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	export := &apisv1alpha1.APIExport{}
	resourceSchema := shardtesting.NewSchema("v1", schema.GroupResource{Group: group, Resource: "zertifikate"}, "Zertifikat")
	one := client.MatchingFields{"metadata.name": "certificate-management"}
	for name, err := range map[string]error{
		"get the logical cluster": agent.Get(ctx, client.ObjectKey{Name: "cluster"}, &corev1alpha1.LogicalCluster{}),
		"get the export":          agent.Get(ctx, client.ObjectKey{Name: "certificate-management"}, export),
		"list the export":         agent.List(ctx, &apisv1alpha1.APIExportList{}, one),
		"list endpoint slices":    agent.List(ctx, &apisv1alpha1.APIExportEndpointSliceList{}),
		"create a schema":         agent.Create(ctx, resourceSchema),
		"list schemas":            agent.List(ctx, &apisv1alpha1.APIResourceSchemaList{}),
		"create an event in the newer group": agent.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "certificate-management.2"}, EventTime: metav1.NowMicro(),
			Regarding:           corev1.ObjectReference{Kind: "APIExport", Name: "certificate-management"},
			ReportingController: "sync-agent", ReportingInstance: "a", Action: "Publish", Reason: "AddingResourceSchemas", Type: corev1.EventTypeNormal,
		}),
		"create an event": agent.Create(ctx, newEvent()),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	shardtesting.Eventually(t, "the agent adds its schema", func(ctx context.Context) error {
		if err := agent.Get(ctx, client.ObjectKey{Name: "certificate-management"}, export); err != nil {
			return err
		}
		export.Spec.LatestResourceSchemas = []string{resourceSchema.Name}
		return agent.Update(ctx, export)
	})
	for name, err := range map[string]error{
		"list all exports":   agent.List(ctx, &apisv1alpha1.APIExportList{}),
		"list Secrets":       agent.List(ctx, &corev1.SecretList{}),
		"list Services":      agent.List(ctx, &kdpcorev1alpha1.ServiceList{}),
		"create an export":   agent.Create(ctx, &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}),
		"delete the export":  agent.Delete(ctx, export),
		"delete the schemas": agent.Delete(ctx, resourceSchema),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want it forbidden", name, err)
		}
	}
}

func newEvent() *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "certificate-management.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "APIExport", Name: "certificate-management"},
		Reason:         "AddingResourceSchemas", Type: corev1.EventTypeNormal,
	}
}

// testConsumer lists the objects of a consumer at the URL of the endpoint slice, with the credentials of the kubeconfig.
func testConsumer(t *testing.T, e *env) {
	consumer := e.shard.NewWorkspace(t, "root", "consumer")
	e.shard.Bind(t, consumer.Spec.Cluster, "root:corp", "certificate-management")
	agent, err := e.agent(t.Context(), "default", "certificate-management-kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	if err := e.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "certificate-management-kubeconfig"}, secret); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the agent lists the objects of its consumers", func(ctx context.Context) error {
		slice := &apisv1alpha1.APIExportEndpointSlice{}
		if err := agent.Get(ctx, client.ObjectKey{Name: "certificate-management"}, slice); err != nil {
			return err
		}
		if len(slice.Status.APIExportEndpoints) == 0 {
			return errors.New("the slice has no endpoints")
		}
		config.Host = slice.Status.APIExportEndpoints[0].URL + "/clusters/*"
		c, err := client.New(config, client.Options{})
		if err != nil {
			return err
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "ZertifikatList"})
		return c.List(ctx, list)
	})
}

func testRotation(t *testing.T, e *env) {
	ctx := t.Context()
	before, err := e.agent(ctx, "default", "certificate-management-kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	token := client.ObjectKey{Namespace: "default", Name: "sync-agent-certificate-management-token"}
	first := &corev1.Secret{}
	if err := e.Get(ctx, token, first); err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(ctx, first); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the kubeconfig has another token", func(ctx context.Context) error {
		second := &corev1.Secret{}
		if err := e.Get(ctx, token, second); err != nil {
			return err
		}
		kubeconfig := &corev1.Secret{}
		if err := e.Get(ctx, client.ObjectKey{Namespace: "default", Name: "certificate-management-kubeconfig"}, kubeconfig); err != nil {
			return err
		}
		content, err := clientcmd.Load(kubeconfig.Data["kubeconfig"])
		if err != nil {
			return err
		}
		issued := string(second.Data[corev1.ServiceAccountTokenKey])
		if issued == "" || second.UID == first.UID || content.AuthInfos["sync-agent-certificate-management"].Token != issued {
			return errors.New("it has not")
		}
		return nil
	})
	after, err := e.agent(ctx, "default", "certificate-management-kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	if err := after.List(ctx, &apisv1alpha1.APIResourceSchemaList{}); err != nil {
		t.Errorf("with the new token: %v", err)
	}
	shardtesting.Eventually(t, "the old token is refused", func(ctx context.Context) error {
		if err := before.List(ctx, &apisv1alpha1.APIResourceSchemaList{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("it is answered with %v", err)
		}
		return nil
	})
}

func testGroup(t *testing.T, e *env) {
	second := e.create(t, "second", group)
	ready := e.expectReason(t, second.Name, kdpcorev1alpha1.ReasonAPIGroupTaken)
	if !strings.Contains(ready.Message, "certificate-management") {
		t.Errorf("the message does not name the other service: %s", ready.Message)
	}
	if err := e.Get(t.Context(), client.ObjectKey{Name: second.Name}, &apisv1alpha1.APIExport{}); !apierrors.IsNotFound(err) {
		t.Errorf("its export: %v, want none", err)
	}
	e.expectReason(t, "certificate-management", kdpcorev1alpha1.ReasonOffered)

	first := e.create(t, "first", "databases.example.corp")
	e.expectReason(t, first.Name, kdpcorev1alpha1.ReasonOffered)
	waiting := e.create(t, "waiting", "databases.example.corp")
	e.expectReason(t, waiting.Name, kdpcorev1alpha1.ReasonAPIGroupTaken)
	if err := e.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	e.expectReason(t, waiting.Name, kdpcorev1alpha1.ReasonOffered)
}

func testTaken(t *testing.T, e *env) {
	foreign := &apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}
	if err := e.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	service := e.create(t, "foreign", "foreign.example.corp")
	ready := e.expectReason(t, service.Name, kdpcorev1alpha1.ReasonNameTaken)
	if !strings.Contains(ready.Message, `APIExport "foreign"`) {
		t.Errorf("the message does not name the export: %s", ready.Message)
	}
	if export := e.export(t, "foreign"); len(export.OwnerReferences) > 0 || len(export.Annotations[kdpcorev1alpha1.APIGroupAnnotationKey]) > 0 {
		t.Errorf("the export was changed: %+v", export.ObjectMeta)
	}
	if err := e.Delete(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	e.expectReason(t, service.Name, kdpcorev1alpha1.ReasonOffered)
}

func testMove(t *testing.T, e *env) {
	if err := e.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "agents"}}); err != nil {
		t.Fatal(err)
	}
	service := &kdpcorev1alpha1.Service{}
	shardtesting.Eventually(t, "naming another Secret", func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKey{Name: "certificate-management"}, service); err != nil {
			return err
		}
		service.Spec.Kubeconfig = &kdpcorev1alpha1.SecretReference{Namespace: "agents", Name: "certificates"}
		return e.Update(ctx, service)
	})
	shardtesting.Eventually(t, "the kubeconfig is there and works", func(ctx context.Context) error {
		agent, err := e.agent(ctx, "agents", "certificates")
		if err != nil {
			return err
		}
		return agent.List(ctx, &apisv1alpha1.APIResourceSchemaList{})
	})
	for _, object := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "certificate-management-kubeconfig"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "sync-agent-certificate-management-token"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sync-agent-certificate-management"}},
	} {
		object.SetNamespace("default")
		e.expectGone(t, object)
	}
	e.expectReason(t, service.Name, kdpcorev1alpha1.ReasonOffered)
}

func testDeletion(t *testing.T, e *env) {
	if err := e.Delete(t.Context(), &kdpcorev1alpha1.Service{ObjectMeta: metav1.ObjectMeta{Name: "certificate-management"}}); err != nil {
		t.Fatal(err)
	}
	account := "sync-agent-certificate-management"
	for _, object := range []client.Object{
		&apisv1alpha1.APIExport{ObjectMeta: metav1.ObjectMeta{Name: "certificate-management"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: "certificates"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: account + "-token"}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "agents", Name: account}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: account}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account}},
	} {
		e.expectGone(t, object)
	}
	e.expectReason(t, "second", kdpcorev1alpha1.ReasonOffered) // the group is free
}
