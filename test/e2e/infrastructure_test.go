//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

const (
	infrastructureSamples   = "../../config/samples/infrastructure/"
	infrastructureNamespace = "infrastructure-provider" // of config/infrastructure-provider
	infrastructureGroup     = "infrastructure.kedge.faros.sh"
	labelTenant             = infrastructureGroup + "/cluster"
	labelInstance           = infrastructureGroup + "/instance"
)

// managedByProvider is on all objects that the provider creates in the runtime cluster.
var managedByProvider = client.MatchingLabels{"app.kubernetes.io/managed-by": "infrastructure-provider"}

// tenant is a workspace that has bound the catalogue, and the namespace in the runtime cluster with the objects of its instances.
type tenant struct {
	workspace
	in        *installation
	namespace string
}

// testInfrastructure runs the samples of the infrastructure provider: two replicas on pods with the shipped Templates, and tenants on two
// shards whose instances are real servers. It leaves nothing behind.
func (in *installation) testInfrastructure(t *testing.T) {
	provider := in.createWorkspaceOn(t, "root", "infrastructure", "alpha")
	in.deployProvider(t)
	t.Cleanup(func() { in.removeProvider(t) })
	provider.waitTemplates(t, "application", "postgres", "redis")

	first, second := in.newTenant(t, "blue", "root"), in.newTenant(t, "green", "beta")
	first.testRedis(t)
	second.testPostgres(t, provider)
	if os.Getenv(envTofu) != "" {
		first.testOpenTofu(t, provider)
	}
	first.testDeletion(t)
	in.deleteWorkspace(t, first.workspace)
	// The workspace is deleted with an instance in it.
	in.deleteWorkspace(t, second.workspace)
	for _, gone := range []tenant{first, second} {
		gone.waitEmpty(t, nil)
	}
	// The workspace of the provider is deleted with Templates in it.
	in.deleteWorkspace(t, provider)
	// A Kubeconfig is not Ready without its workspace.
	if err := in.host.Delete(t.Context(), &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: "infrastructure-provider"}}); err != nil {
		t.Fatal(err)
	}
}

// providerManifests returns those of the sample, with the backend opentofu where its image is in the nodes.
func providerManifests(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	if os.Getenv(envTofu) == "" {
		return kustomized(t, infrastructureSamples+"provider")
	}
	overlay := t.TempDir()
	config, err := filepath.Abs("../../config")
	if err != nil {
		t.Fatal(err)
	}
	if config, err = filepath.Rel(overlay, config); err != nil {
		t.Fatal(err)
	}
	content := fmt.Sprintf("resources: [%[1]s/samples/infrastructure/provider]\ncomponents: [%[1]s/infrastructure-provider/opentofu]\n", config)
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return kustomized(t, overlay)
}

func (in *installation) deployProvider(t *testing.T) {
	t.Helper()
	in.apply(t, providerManifests(t)...)
	in.podKubeconfig(t, readFile(t, infrastructureSamples+"kubeconfig.yaml"), infrastructureNamespace)
	in.waitReplicas(t, infrastructureNamespace, "infrastructure-provider", 2)
}

// removeProvider must work after t's context has ended.
func (in *installation) removeProvider(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if t.Failed() {
		var out bytes.Buffer
		in.dumpPods(ctx, &out, infrastructureNamespace)
		t.Logf("the provider at the failure:\n%s", out.String())
		if os.Getenv("E2E_KEEP") != "" {
			return
		}
	}
	in.removeObjects(ctx, t, providerManifests(t), managedByProvider, infrastructureNamespace)
}

// waitTemplates waits until Templates are Ready.
func (w workspace) waitTemplates(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		eventually(t, time.Minute, "Template "+name, func(ctx context.Context) error {
			template := newInfrastructureObject("Template", name)
			if err := newClient(t, w.config).Get(ctx, client.ObjectKey{Name: name}, template); err != nil {
				return err
			}
			if c := condition(template, "Ready"); c == nil || c.Status != metav1.ConditionTrue {
				return fmt.Errorf("condition Ready is %+v", c)
			}
			return nil
		})
	}
}

func newInfrastructureObject(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(infrastructureGroup + "/v1alpha1")
	u.SetKind(kind)
	u.SetName(name)
	return u
}

// newTenant creates a workspace on a shard that sees the catalogue.
func (in *installation) newTenant(t *testing.T, name, shard string) tenant {
	t.Helper()
	w := in.createWorkspaceOn(t, "root", name, shard)
	w.apply(t, readFile(t, infrastructureSamples+"binding.yaml"))
	eventually(t, time.Minute, "the catalogue in "+w.path, func(ctx context.Context) error {
		templates := &unstructured.UnstructuredList{}
		templates.SetGroupVersionKind(newInfrastructureObject("TemplateList", "").GroupVersionKind())
		if err := newClient(t, w.config).List(ctx, templates); err != nil {
			return err
		}
		if len(templates.Items) < 3 {
			return fmt.Errorf("has %d Templates", len(templates.Items))
		}
		for i := range templates.Items {
			if _, found, _ := unstructured.NestedFieldNoCopy(templates.Items[i].Object, "spec", "backendConfig"); found {
				t.Errorf("%s shows how it is made", templates.Items[i].GetName())
			}
		}
		return nil
	})
	return tenant{w, in, w.cluster}
}

// order applies a manifest, and returns the instance once it is Ready.
func (te tenant) order(t *testing.T, manifest string) *unstructured.Unstructured {
	t.Helper()
	te.apply(t, manifest)
	ordered := time.Now()
	instance := te.waitReady(t, parseObjects(t, manifest)[0])
	t.Logf("%s %s is Ready %.1f s after it was applied", instance.GetKind(), instance.GetName(), time.Since(ordered).Seconds())
	return instance
}

// waitReady waits until the present generation of an instance is Ready.
func (te tenant) waitReady(t *testing.T, instance *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	eventually(t, 2*time.Minute, instance.GetKind()+" "+instance.GetName(), func(ctx context.Context) error {
		if err := newClient(t, te.config).Get(ctx, client.ObjectKeyFromObject(instance), instance); err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(instance.Object, "status", "phase")
		generation, _, _ := unstructured.NestedInt64(instance.Object, "status", "observedGeneration")
		if phase != "Ready" || generation != instance.GetGeneration() {
			return fmt.Errorf("status is %v", instance.Object["status"])
		}
		return nil
	})
	return instance
}

// connection returns the Secret that an instance's status names.
func (te tenant) connection(t *testing.T, instance *unstructured.Unstructured) map[string]string {
	t.Helper()
	values := map[string]string{}
	eventually(t, 30*time.Second, "the connection of "+instance.GetName(), func(ctx context.Context) error {
		if err := newClient(t, te.config).Get(ctx, client.ObjectKeyFromObject(instance), instance); err != nil {
			return err
		}
		name, _, _ := unstructured.NestedString(instance.Object, "status", "connectionSecret", "name")
		if name == "" {
			return fmt.Errorf("status is %v", instance.Object["status"])
		}
		secret := &corev1.Secret{}
		if err := te.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, secret); err != nil {
			return err
		}
		for key, value := range secret.Data {
			values[key] = string(value)
		}
		return nil
	})
	return values
}

// runClient runs a program in a pod beside the tenant's instances, and returns its output. It retries until the program succeeds.
func (te tenant) runClient(t *testing.T, image string, command ...string) string {
	t.Helper()
	clients, err := kubernetes.NewForConfig(te.in.config)
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "client-", Namespace: te.namespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyOnFailure, AutomountServiceAccountToken: ptr.To(false),
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](999), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "client", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Command: command,
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if err := te.in.host.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := te.in.host.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	}()
	read := func(ctx context.Context) string {
		stream, err := clients.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(ctx)
		if err != nil {
			return err.Error()
		}
		defer stream.Close()
		text, err := io.ReadAll(stream)
		return strings.TrimSpace(string(text)) + strings.TrimPrefix(fmt.Sprint(err), "<nil>")
	}
	eventually(t, time.Minute, "the end of a client of "+te.path, func(ctx context.Context) error {
		if err := te.in.host.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err
		}
		if pod.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("phase %s: %s", pod.Status.Phase, read(ctx))
		}
		return nil
	})
	return read(t.Context())
}

// expectRestricted checks that all pods of the tenant comply with the restricted profile of pod security.
func (te tenant) expectRestricted(t *testing.T) {
	t.Helper()
	config := rest.CopyConfig(te.in.config)
	found := &warnings{}
	config.WarningHandlerWithContext = found
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	if err := newClient(t, config).Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: te.namespace}}, patch, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	if len(found.texts) > 0 {
		t.Errorf("pods of %s: %v", te.path, found.texts)
	}
}

// warnings collects the warnings of the API server.
type warnings struct{ texts []string }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.texts = append(w.texts, text)
}

// testRedis orders a Redis, uses, changes and damages it.
func (te tenant) testRedis(t *testing.T) {
	t.Helper()
	const image = "docker.io/library/redis:7"
	redis := te.order(t, readFile(t, infrastructureSamples+"redis.yaml"))
	te.expectRestricted(t)
	connection := te.connection(t, redis)
	if got := te.runClient(t, image, "redis-cli", "--no-auth-warning", "-u", connection["url"], "SET", "key", "kept"); got != "OK" {
		t.Errorf("SET returns %q", got)
	}
	if got := te.runClient(t, image, "redis-cli", "-h", connection["host"], "GET", "key"); !strings.Contains(got, "NOAUTH") {
		t.Errorf("without the password, GET returns %q", got)
	}

	te.apply(t, strings.Replace(readFile(t, infrastructureSamples+"redis.yaml"), "size: small", "size: medium", 1))
	te.waitReady(t, redis)
	server := &appsv1.StatefulSet{}
	key := client.ObjectKey{Namespace: te.namespace, Name: "redis-sessions"}
	if err := te.in.host.Get(t.Context(), key, server); err != nil {
		t.Fatal(err)
	}
	if got := server.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String(); got != "1Gi" {
		t.Errorf("a medium Redis has %s of memory", got)
	}
	if again := te.connection(t, redis); again["password"] != connection["password"] {
		t.Error("the password has changed")
	}
	if got := te.runClient(t, image, "redis-cli", "--no-auth-warning", "-u", connection["url"], "GET", "key"); got != "kept" {
		t.Errorf("after the change of its size, GET returns %q", got)
	}

	if err := te.in.host.Patch(t.Context(), server, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":0}}`))); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{}
	if err := te.in.host.Get(t.Context(), key, service); err != nil {
		t.Fatal(err)
	}
	before := service.UID
	if err := te.in.host.Delete(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the repair of the StatefulSet and the Service", func(ctx context.Context) error {
		if err := te.in.host.Get(ctx, key, service); err != nil {
			return err
		}
		if err := te.in.host.Get(ctx, key, server); err != nil {
			return err
		}
		if service.UID == before || *server.Spec.Replicas != 1 || server.Status.ReadyReplicas != 1 {
			return fmt.Errorf("%d replicas are ready, another Service: %v", server.Status.ReadyReplicas, service.UID != before)
		}
		return nil
	})
	te.waitReady(t, redis)
	if got := te.runClient(t, image, "redis-cli", "--no-auth-warning", "-u", connection["url"], "GET", "key"); got != "kept" {
		t.Errorf("after the repair, GET returns %q", got)
	}
}

// testPostgres orders a Postgres and kills the leader of the provider in the meantime: the other replica completes it, once.
func (te tenant) testPostgres(t *testing.T, provider workspace) {
	t.Helper()
	lease := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "infrastructure-provider"}
	killed := leader(t, provider.client, lease)
	manifest := readFile(t, infrastructureSamples+"postgres.yaml")
	te.apply(t, manifest)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: infrastructureNamespace, Name: killed}}
	if err := te.in.host.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	postgres := te.order(t, manifest)
	if next := leader(t, provider.client, lease); next == killed {
		t.Errorf("%s still holds the lease", killed)
	}
	connection := te.connection(t, postgres)
	const sql = "CREATE TABLE t (a int); INSERT INTO t VALUES (42); SELECT current_user, a FROM t"
	if got := te.runClient(t, "docker.io/library/postgres:15", "psql", connection["url"], "-At", "-c", sql); !strings.HasSuffix(got, "orders|42") {
		t.Errorf("psql prints %q", got)
	}
	for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}} {
		if got := te.made(t.Context(), t, list, postgres); len(got) != 1 {
			t.Errorf("%T: has %v, want one", list, got)
		}
	}
	te.testApplication(t)
	te.expectRestricted(t)
}

// testApplication orders an application, and asks one of its pods.
func (te tenant) testApplication(t *testing.T) {
	t.Helper()
	application := te.order(t, readFile(t, infrastructureSamples+"application.yaml"))
	pods := &corev1.PodList{}
	if err := te.in.host.List(t.Context(), pods, client.InNamespace(te.namespace), client.MatchingLabels{"app.kubernetes.io/name": "application"}); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 2 {
		t.Fatalf("%s has %d pods, want 2", application.GetName(), len(pods.Items))
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+te.in.podAddress(t, &pods.Items[0], 8080), http.NoBody)
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
func (te tenant) made(ctx context.Context, t *testing.T, list client.ObjectList, instance *unstructured.Unstructured) (names []string) {
	t.Helper()
	labels := client.MatchingLabels{labelTenant: te.cluster}
	if instance != nil {
		labels[labelInstance] = instance.GetName()
	}
	if err := te.in.host.List(ctx, list, client.InNamespace(te.namespace), labels); err != nil {
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

// waitEmpty waits until the runtime cluster has no object of an instance, or of all instances of the tenant.
func (te tenant) waitEmpty(t *testing.T, instance *unstructured.Unstructured) {
	t.Helper()
	eventually(t, 2*time.Minute, "the end of what instances of "+te.path+" are made of", func(ctx context.Context) error {
		for _, list := range []client.ObjectList{
			&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.SecretList{}, &corev1.PersistentVolumeClaimList{}, &corev1.ConfigMapList{},
		} {
			if left := te.made(ctx, t, list, instance); len(left) > 0 {
				return fmt.Errorf("%T: %v", list, left)
			}
		}
		return nil
	})
}

// testDeletion deletes the Redis of a tenant. When it is deleted, so are its objects and its Secret.
func (te tenant) testDeletion(t *testing.T) {
	t.Helper()
	c := newClient(t, te.config)
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
		if left := te.made(t.Context(), t, list, redis); len(left) > 0 {
			t.Errorf("after the Redis is gone, %T: %v", list, left)
		}
	}
	eventually(t, 30*time.Second, "the deletion of its Secret in the workspace", func(ctx context.Context) error {
		secrets := &corev1.SecretList{}
		if err := te.client.List(ctx, secrets, client.MatchingLabels{infrastructureGroup + "/connection": "true"}); err != nil {
			return err
		}
		if len(secrets.Items) > 0 {
			return errors.New("it exists")
		}
		return nil
	})
}

// tokenTemplate is a Template whose instances OpenTofu creates, with no resources outside of its state.
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

// testOpenTofu orders an instance that a run of OpenTofu creates in a pod, changes it, and deletes it.
func (te tenant) testOpenTofu(t *testing.T, provider workspace) {
	t.Helper()
	provider.apply(t, tokenTemplate)
	provider.waitTemplates(t, "token")
	const manifest = "apiVersion: infrastructure.kedge.faros.sh/v1alpha1\nkind: Token\nmetadata: {name: first}\nspec: {length: 8}\n"
	token := te.order(t, manifest)
	value := te.connection(t, token)["value"]
	te.apply(t, strings.Replace(manifest, "8", "9", 1))
	te.waitReady(t, token)
	if endpoint, _, _ := unstructured.NestedString(token.Object, "status", "endpoint"); endpoint != "9.tokens.example.org" {
		t.Errorf("endpoint %q", endpoint)
	}
	if again := te.connection(t, token)["value"]; value == "" || again != value {
		t.Errorf("the resource was replaced: %q, before %q", again, value)
	}
	if err := newClient(t, te.config).Delete(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	te.waitEmpty(t, token)
	if jobs := te.made(t.Context(), t, &batchv1.JobList{}, token); len(jobs) > 0 {
		t.Errorf("left: %v", jobs)
	}
}
