//go:build gitops

package gitops

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/atoll-dev/atoll/test/debian"
	"github.com/atoll-dev/atoll/test/programs"
)

const argoNamespace = "argocd"

var applicationKind = schema.GroupVersionKind{Group: "argoproj.io", Version: "v1alpha1", Kind: "Application"}

// argoCD is a running Argo CD: its application controller, repository server and API server, without sign-in.
type argoCD struct {
	*environment
	url      string // of the API server
	programs []*programs.Process
	revision string // the commit that Argo CD should have
}

// startArgoCD installs Argo CD's definitions and settings with the component config/argocd, and runs its programs until the
// end of the test, which removes the namespace and the definitions. After a failure they stay, with what the Applications have made: the cluster is removed then.
func startArgoCD(t *testing.T, e *environment) *argoCD {
	t.Helper()
	objects := argoObjects(t)
	for _, u := range objects {
		if err := e.host.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("gitops"), client.ForceOwnership); err != nil {
			t.Fatalf("apply %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	redis, repo, api := programs.FreeAddress(t), programs.FreeAddress(t), programs.FreeAddress(t)
	a := &argoCD{environment: e, url: "http://" + api}
	t.Cleanup(func() {
		if !t.Failed() {
			e.deleteAll(t, objects)
		}
	})
	directory := t.TempDir()
	programs.Start(t, directory, debian.Program(t, "redis-server", "redis-server"), "--bind", "127.0.0.1", "--port", port(t, redis), "--save", "", "--appendonly", "no")
	a.startArgoProgram(t, directory, "argocd-repo-server", "--address", "127.0.0.1", "--port", port(t, repo), "--redis", redis,
		"--metrics-address", "127.0.0.1", "--metrics-port", port(t, programs.FreeAddress(t)))
	a.startArgoProgram(t, directory, "argocd-application-controller", "--namespace", argoNamespace, "--redis", redis, "--repo-server", repo,
		"--metrics-port", port(t, programs.FreeAddress(t)), "--app-resync", "30", "--app-resync-jitter", "0")
	a.startArgoProgram(t, directory, "argocd-server", "--namespace", argoNamespace, "--address", "127.0.0.1", "--port", port(t, api), "--redis", redis, "--repo-server", repo,
		"--insecure", "--disable-auth", "--metrics-address", "127.0.0.1", "--metrics-port", port(t, programs.FreeAddress(t)))
	eventually(t, 2*time.Minute, "a response of Argo CD", func(ctx context.Context) error {
		var version struct{ Version string }
		return a.get(ctx, "/api/version", &version)
	})
	return a
}

// argoObjects are Argo CD's definitions and settings, with the component of this repository.
func argoObjects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	overlay := t.TempDir()
	relative := func(path string) string {
		absolute, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		out, err := filepath.Rel(overlay, absolute)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	manifests := os.Getenv(envManifests)
	kustomization := fmt.Sprintf(`
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: %s
resources: [namespace.yaml, %q, %q]
components: [%q]
patches:
- patch: |
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: argocd-cm}
    data: {resource.respectRBAC: normal}
`, argoNamespace, relative(manifests+"/crds"), relative(manifests+"/base/config"), relative("../../config/argocd"))
	for name, content := range map[string]string{
		"kustomization.yaml": kustomization,
		"namespace.yaml":     "{apiVersion: v1, kind: Namespace, metadata: {name: argocd}}\n",
	} {
		if err := os.WriteFile(filepath.Join(overlay, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		t.Fatalf("kustomize build: %v", err)
	}
	var out []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(resource.MustYaml()), &u.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// deleteAll deletes objects and waits until they do not exist any more. It works after t's context has ended.
func (e *environment) deleteAll(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for _, u := range objects {
		if err := e.host.Delete(ctx, u.DeepCopy()); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
	for _, u := range objects {
		u = u.DeepCopy()
		for e.host.Get(ctx, client.ObjectKeyFromObject(u), u) == nil {
			select {
			case <-time.After(250 * time.Millisecond):
			case <-ctx.Done():
				t.Errorf("%s %s is not deleted: finalizers %v", u.GetKind(), u.GetName(), u.GetFinalizers())
				return
			}
		}
	}
}

// startArgoProgram runs Argo CD's binary as one of its programs.
func (a *argoCD) startArgoProgram(t *testing.T, directory, name string, args ...string) {
	t.Helper()
	path, err := filepath.Abs(os.Getenv(envPrograms))
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"tls", "ssh", "gpg", "plugins"} {
		if err := os.MkdirAll(filepath.Join(directory, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	environment := []string{
		"ARGOCD_BINARY_NAME=" + name, "KUBECONFIG=" + a.kubeconfig, "HOME=" + directory, "TMPDIR=" + directory,
		"ARGOCD_FAKE_IN_CLUSTER=true", // https://kubernetes.default.svc is the cluster of KUBECONFIG
		"ARGOCD_TLS_DATA_PATH=" + directory + "/tls", "ARGOCD_SSH_DATA_PATH=" + directory + "/ssh", "ARGOCD_GPG_ENABLED=false",
		"ARGOCD_PLUGINSOCKFILEPATH=" + directory + "/plugins", "ARGOCD_GNUPGHOME=" + directory + "/gpg",
		"PATH=" + path + ":" + os.Getenv("PATH"), // the repository server runs git and kustomize
		filepath.Join(path, "argocd"), "--loglevel", "info",
	}
	process := programs.StartAs(t, name, directory, "/usr/bin/env", append(environment, args...)...)
	a.programs = append(a.programs, process)
}

func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// get reads a resource of Argo CD's API.
func (a *argoCD) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, response.Status, body)
	}
	return json.Unmarshal(body, into)
}

// application is the state of an Application in Argo CD.
type application struct {
	Metadata struct{ ResourceVersion string }
	Status   struct {
		Sync           struct{ Status, Revision string }
		Health         struct{ Status, Message string }
		Conditions     []struct{ Type, Message string }
		OperationState struct{ Phase, Message string }
		Resources      []resourceStatus
	}
}

// resourceStatus is one object of an Application.
type resourceStatus struct {
	Kind, Namespace, Name, Status string
	Health                        struct{ Status, Message string }
}

// application reads the Application from Argo CD's API, which returns the health of every object.
func (a *argoCD) application(ctx context.Context, name string) (*application, error) {
	for _, p := range a.programs {
		select {
		case <-p.Exited():
			return nil, fmt.Errorf("%s has ended: %s", p.Name, p.Tail())
		default:
		}
	}
	out := &application{}
	return out, a.get(ctx, "/api/v1/applications/"+name, out)
}

// shard returns the status of a Shard in Argo CD.
func (app *application) shard(t *testing.T, name string) resourceStatus {
	t.Helper()
	for _, r := range app.Status.Resources {
		if r.Kind == "Shard" && r.Name == name {
			return r
		}
	}
	t.Fatalf("the Application has no Shard %s: %v", name, app.Status.Resources)
	return resourceStatus{}
}

// pictureOf takes a picture of the output of Argo CD's command for an Application, if pictures are requested.
func (a *argoCD) pictureOf(t *testing.T, name string) {
	t.Helper()
	t.Setenv("PATH", os.Getenv(envPrograms)+":"+os.Getenv("PATH"))
	t.Setenv("ARGOCD_SERVER", strings.TrimPrefix(a.url, "http://"))
	t.Setenv("ARGOCD_OPTS", "--plaintext")
	t.Setenv("ARGOCD_CONFIG_DIR", t.TempDir())
	a.picture(t, "argocd", "argocd", "app", "get", name)
}

// reached returns nil when Argo CD has synced a revision, and its health is one of a list.
func (app *application) reached(revision, health string) error {
	s := &app.Status
	if s.Sync.Status == "Synced" && s.Sync.Revision == revision && s.Health.Status == health && s.OperationState.Phase != "Running" {
		return nil
	}
	lines := []string{fmt.Sprintf("%s at %.8s (want %.8s), %s; operation %s: %s", s.Sync.Status, s.Sync.Revision, revision, s.Health.Status, s.OperationState.Phase, s.OperationState.Message)}
	for _, c := range s.Conditions {
		lines = append(lines, c.Type+": "+c.Message)
	}
	for _, r := range s.Resources {
		if r.Status != "Synced" || (r.Health.Status != "Healthy" && r.Health.Status != "") {
			lines = append(lines, fmt.Sprintf("%s %s: %s, %s: %s", r.Kind, r.Name, r.Status, r.Health.Status, r.Health.Message))
		}
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

// apply creates or changes an Application.
func (a *argoCD) apply(t *testing.T, manifest string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &u.Object); err != nil {
		t.Fatal(err)
	}
	if err := a.host.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("gitops"), client.ForceOwnership); err != nil {
		t.Fatalf("apply %s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

// applicationObject identifies an Application in requests.
func applicationObject(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(applicationKind)
	u.SetNamespace(argoNamespace)
	u.SetName(name)
	return u
}

// refresh requests Argo CD to read the repository immediately, like a webhook of a git server.
func (a *argoCD) refresh(t *testing.T, name string) {
	t.Helper()
	u := applicationObject(name)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"}}}`))
	if err := a.host.Patch(t.Context(), u, patch); err != nil {
		t.Fatal(err)
	}
}

// awaitHealthy waits until an Application is Synced with the newest commit, and Healthy.
func (a *argoCD) awaitHealthy(t *testing.T, name string, limit time.Duration) {
	t.Helper()
	a.awaitHealth(t, name, "Healthy", limit)
}

// awaitHealth waits until an Application is Synced with the newest commit and has this health.
func (a *argoCD) awaitHealth(t *testing.T, name, health string, limit time.Duration) (app *application) {
	t.Helper()
	a.refresh(t, name)
	eventually(t, limit, name+" Synced and "+health, func(ctx context.Context) (err error) {
		if app, err = a.application(ctx, name); err != nil {
			return err
		}
		return app.reached(a.revision, health)
	})
	return app
}

// deleteApplication deletes an Application and waits until Argo CD has deleted its objects and itself.
func (a *argoCD) deleteApplication(t *testing.T, name string) {
	t.Helper()
	u := applicationObject(name)
	if err := a.host.Delete(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Minute, "deletion of "+name, func(ctx context.Context) error {
		err := a.host.Get(ctx, client.ObjectKeyFromObject(u), u)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		return fmt.Errorf("it is still there: %v", conditions)
	})
}
