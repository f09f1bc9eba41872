//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// testRedis orders a Redis, uses, changes and damages it.
func (n tenant) testRedis(t *testing.T) {
	t.Helper()
	const image = "docker.io/library/redis:7"
	redis := n.order(t, readFile(t, infrastructureSamples+"redis.yaml"))
	n.expectRestricted(t)
	connection := n.connection(t, redis)
	if got := n.runClient(t, image, "redis-cli", "--no-auth-warning", "-u", connection["url"], "SET", "key", "kept"); got != "OK" {
		t.Errorf("SET returns %q", got)
	}
	if got := n.runClient(t, image, "redis-cli", "-h", connection["host"], "GET", "key"); !strings.Contains(got, "NOAUTH") {
		t.Errorf("without the password, GET returns %q", got)
	}

	n.apply(t, strings.Replace(readFile(t, infrastructureSamples+"redis.yaml"), "size: small", "size: medium", 1))
	n.waitReady(t, redis)
	server := &appsv1.StatefulSet{}
	key := client.ObjectKey{Namespace: n.namespace, Name: "redis-sessions"}
	if err := n.in.host.Get(t.Context(), key, server); err != nil {
		t.Fatal(err)
	}
	if got := server.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String(); got != "1Gi" {
		t.Errorf("a medium Redis has %s of memory", got)
	}
	if again := n.connection(t, redis); again["password"] != connection["password"] {
		t.Error("the password has changed")
	}
	if got := n.runClient(t, image, "redis-cli", "--no-auth-warning", "-u", connection["url"], "GET", "key"); got != "kept" {
		t.Errorf("after the change of its size, GET returns %q", got)
	}

	if err := n.in.host.Patch(t.Context(), server, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{}
	if err := n.in.host.Get(t.Context(), key, service); err != nil {
		t.Fatal(err)
	}
	before := service.UID
	if err := n.in.host.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the repair of the StatefulSet and the Service", func(ctx context.Context) error {
		if err := n.in.host.Get(ctx, key, service); err != nil {
			return err
		}
		if err := n.in.host.Get(ctx, key, server); err != nil {
			return err
		}
		if service.UID == before || *server.Spec.Replicas != 1 || server.Status.ReadyReplicas != 1 {
			return fmt.Errorf("%d replicas are ready, another Service: %v", server.Status.ReadyReplicas, service.UID != before)
		}
		return nil
	})
	n.waitReady(t, redis)
	if got := n.runClient(t, image, "redis-cli", "--no-auth-warning", "-u", connection["url"], "GET", "key"); got != "kept" {
		t.Errorf("after the repair, GET returns %q", got)
	}
}

// testPostgres orders a Postgres and kills the leader of the provider meanwhile: the other replica completes it, once.
func (n tenant) testPostgres(t *testing.T, provider workspace) {
	t.Helper()
	lease := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "infrastructure-provider"}
	killed := leader(t, provider.client, lease)
	manifest := readFile(t, infrastructureSamples+"postgres.yaml")
	n.apply(t, manifest)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: infrastructureNamespace, Name: killed}}
	if err := n.in.host.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	postgres := n.order(t, manifest)
	if next := leader(t, provider.client, lease); next == killed {
		t.Errorf("%s still holds the lease", killed)
	}
	connection := n.connection(t, postgres)
	const sql = "CREATE TABLE t (a int); INSERT INTO t VALUES (42); SELECT current_user, a FROM t"
	if got := n.runClient(t, "docker.io/library/postgres:15", "psql", connection["url"], "-At", "-c", sql); !strings.HasSuffix(got, "orders|42") {
		t.Errorf("psql prints %q", got)
	}
	for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}} {
		if got := n.made(t.Context(), t, list, postgres); len(got) != 1 {
			t.Errorf("%T: has %v, want one", list, got)
		}
	}
	n.testApplication(t)
	n.expectRestricted(t)
}

// testApplication orders an application, and asks one of its pods.
func (n tenant) testApplication(t *testing.T) {
	t.Helper()
	application := n.order(t, readFile(t, infrastructureSamples+"application.yaml"))
	pods := &corev1.PodList{}
	if err := n.in.host.List(t.Context(), pods, client.InNamespace(n.namespace), client.MatchingLabels{"app.kubernetes.io/name": "application"}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 2 {
		t.Fatalf("%s has %d pods, want 2", application.GetName(), len(pods.Items))
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.in.podAddress(t, &pods.Items[0], 8080), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("a pod of the application returns %s", response.Status)
	}
}

// made returns the names of objects of an instance, or of all instances of the tenant, in the runtime cluster.
func (n tenant) made(ctx context.Context, t *testing.T, list client.ObjectList, instance *unstructured.Unstructured) (names []string) {
	t.Helper()
	labels := client.MatchingLabels{labelTenant: n.cluster}
	if instance != nil {
		labels[labelInstance] = instance.GetName()
	}
	if err := n.in.host.List(ctx, list, client.InNamespace(n.namespace), labels); err != nil {
		return []string{err.Error()}
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		names = append(names, item.(client.Object).GetName())
	}
	return names
}

// waitEmpty waits until nothing of an instance, or of all instances of the tenant, is in the runtime cluster.
func (n tenant) waitEmpty(t *testing.T, instance *unstructured.Unstructured) {
	t.Helper()
	eventually(t, 2*time.Minute, "the end of what instances of "+n.path+" are made of", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{
			&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ConfigMapList{},
		} {
			if left := n.made(ctx, t, list, instance); len(left) > 0 {
				return fmt.Errorf("%T: %v", list, left)
			}
		}
		return nil
	})
}

// testDeletion deletes the Redis of a tenant. What it is made of and its Secret are gone when it is.
func (n tenant) testDeletion(t *testing.T) {
	t.Helper()
	c := newClient(t, n.config)
	redis := parseObjects(t, readFile(t, infrastructureSamples+"redis.yaml"))[0]
	if err := c.Delete(t.Context(), redis); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "the deletion of the Redis", func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(redis), redis)
		if err == nil {
			return fmt.Errorf("status is %v", redis.Object["status"])
		}
		return client.IgnoreNotFound(err)
	})
	for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ConfigMapList{}} {
		if left := n.made(t.Context(), t, list, redis); len(left) > 0 {
			t.Errorf("after the Redis is gone, %T: %v", list, left)
		}
	}
	eventually(t, 30*time.Second, "the deletion of its Secret in the workspace", func(ctx context.Context) error {
		secrets := &corev1.SecretList{}
		if err := n.client.List(ctx, secrets, client.MatchingLabels{infrastructureGroup + "/connection": "true"}); err != nil {
			return err
		}
		if len(secrets.Items) > 0 {
			return errors.New("it exists")
		}
		return nil
	})
}

// tokenTemplate is a Template whose instances are made by OpenTofu, without anything outside of its state.
const tokenTemplate = `
apiVersion: infrastructure.kedge.faros.sh/v1alpha1
kind: Template
metadata: {name: token}
spec:
  displayName: Token
  version: 1.0.0
  backend: opentofu
  instanceCRD: {group: infrastructure.kedge.faros.sh, version: v1alpha1, kind: Token, resource: tokens}
  schema: {type: object, properties: {length: {type: integer, default: 8}}}
  backendConfig:
    module:
      inline:
        main.tf: |
          variable "length" { type = number }
          resource "terraform_data" "token" { input = var.length }
          output "endpoint" { value = "${terraform_data.token.output}.tokens.example.org" }
          output "value" {
            value     = terraform_data.token.id
            sensitive = true
          }
    variables: {length: "${self.spec.length}"}
    outputs: [endpoint]
    connection: [value]
`

// testOpenTofu orders what a run of OpenTofu makes in a pod, changes it, and deletes it.
func (n tenant) testOpenTofu(t *testing.T, provider workspace) {
	t.Helper()
	provider.apply(t, tokenTemplate)
	provider.waitTemplates(t, "token")
	const manifest = "apiVersion: infrastructure.kedge.faros.sh/v1alpha1\nkind: Token\nmetadata: {name: first}\nspec: {length: 8}\n"
	token := n.order(t, manifest)
	value := n.connection(t, token)["value"]
	n.apply(t, strings.Replace(manifest, "8", "9", 1))
	n.waitReady(t, token)
	if endpoint, _, _ := unstructured.NestedString(token.Object, "status", "endpoint"); endpoint != "9.tokens.example.org" {
		t.Errorf("endpoint %q", endpoint)
	}
	if again := n.connection(t, token)["value"]; value == "" || again != value {
		t.Errorf("the resource was replaced: %q, before %q", again, value)
	}
	if err := newClient(t, n.config).Delete(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	n.waitEmpty(t, token)
	if jobs := n.made(t.Context(), t, &batchv1.JobList{}, token); len(jobs) > 0 {
		t.Errorf("left: %v", jobs)
	}
}
