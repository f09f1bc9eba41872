package shardserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const policy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

func TestAuditLog(t *testing.T) {
	directory := t.TempDir()
	log := filepath.Join(directory, "audit.log")
	sinkLog := filepath.Join(directory, "sink.log")
	for name, content := range map[string]string{
		"policy.yaml": policy, "writes.yaml": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse, verbs: [create]}]\n",
		"sinks.yaml": `
apiVersion: audit.kcp.io/v1alpha1
kind: AuditSinks
sinks: [{name: selected, policyFile: writes.yaml, workspaces: {paths: ["root:selected"]}, file: {path: sink.log}}]
`,
	} {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := shardtesting.Start(t, func(o *options.Options) {
		o.Audit.PolicyFile = filepath.Join(directory, "policy.yaml")
		o.Audit.LogOptions.Path = log
		o.AuditSinksFile = filepath.Join(directory, "sinks.yaml")
	})
	root := s.Kubernetes(t, shardtesting.At(s.Admin(t), "root"))
	expect := func(t *testing.T, what string, found func(auditv1.Event) bool) {
		t.Helper()
		shardtesting.Eventually(t, what, func(context.Context) error {
			events, err := readEvents(log)
			if err != nil {
				return err
			}
			for _, event := range events {
				if found(event) {
					return nil
				}
			}
			return fmt.Errorf("not among %d events", len(events))
		})
	}
	hasCluster := func(event auditv1.Event, cluster string) bool {
		a := event.Annotations
		return a["kcp.io/cluster"] == cluster && a["kcp.io/path"] == cluster && a["tenancy.kcp.io/workspace"] == cluster
	}

	t.Run("events of requests have annotations for the logical cluster and the authorization steps", func(t *testing.T) {
		if _, err := root.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "asked=audit"}); err != nil {
			t.Fatal(err)
		}
		expect(t, "the request", func(event auditv1.Event) bool {
			return hasCluster(event, "root") && event.User.Username == "kcp-admin" && event.ResponseStatus.Code == http.StatusOK &&
				event.ObjectRef != nil && event.ObjectRef.Resource == "configmaps" &&
				event.Annotations["request.auth.kcp.io/02-content-decision"] == "Allowed" && event.Annotations["request.auth.kcp.io/05-bootstrap-reason"] != ""
		})
	})
	t.Run("events of reviews have the decision as annotation", func(t *testing.T) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "mallory", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "secrets"}}}
		if _, err := root.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expect(t, "the review", func(event auditv1.Event) bool {
			return hasCluster(event, "root") && event.Annotations["request.auth.kcp.io/05-bootstrap-decision"] == "Allowed" &&
				event.Annotations["sar.auth.kcp.io/02-content-decision"] == "NoOpinion"
		})
	})
	t.Run("events of unauthenticated requests have the logical cluster", func(t *testing.T) {
		config := rest.AnonymousClientConfig(shardtesting.At(s.Admin(t), "root"))
		config.BearerToken = "wrong"
		if _, err := s.Kubernetes(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil {
			t.Fatal("it was accepted")
		}
		expect(t, "the request", func(event auditv1.Event) bool {
			return hasCluster(event, "root") && event.ResponseStatus != nil && event.ResponseStatus.Code == http.StatusUnauthorized
		})
	})
	t.Run("events of rejected shard-level paths have an annotation", func(t *testing.T) {
		err := s.Kubernetes(t, shardtesting.At(s.Masters(t), "root")).Discovery().RESTClient().Get().AbsPath("/configz").Do(t.Context()).Error()
		if err == nil {
			t.Fatal("it was served")
		}
		expect(t, "the refusal", func(event auditv1.Event) bool {
			return hasCluster(event, "root") && event.Annotations["shardpaths.kcp.io/rejected"] == "/configz" && event.ResponseStatus.Code == http.StatusNotImplemented
		})
	})
	t.Run("a sink has the events of the workspaces that it selects, by its own policy", func(t *testing.T) {
		for _, name := range []string{"selected", "not-selected"} {
			cluster := s.NewWorkspace(t, "root", name).Spec.Cluster
			if _, err := s.Kubernetes(t, shardtesting.At(s.Admin(t), cluster)).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			expect(t, "the creation in the log of the shard", func(event auditv1.Event) bool {
				return hasCluster(event, cluster) && event.Verb == "create" && event.ObjectRef != nil && event.ObjectRef.Name == name && event.RequestObject == nil && event.Level == auditv1.LevelMetadata
			})
		}
		shardtesting.Eventually(t, "the creation in the sink", func(context.Context) error {
			events, err := readEvents(sinkLog)
			if err != nil {
				return err
			}
			var found bool
			for _, event := range events {
				if event.Verb != "create" || event.ObjectRef != nil && event.ObjectRef.Name == "not-selected" {
					t.Errorf("got %v", event)
				}
				found = found || event.ObjectRef != nil && event.ObjectRef.Name == "selected" && event.RequestObject != nil && event.Level == auditv1.LevelRequestResponse
			}
			if !found {
				return fmt.Errorf("not among %d events", len(events))
			}
			return nil
		})
	})
	t.Run("events of loopback writes have the logical cluster", func(t *testing.T) {
		workspace := s.NewWorkspace(t, "root", "audited")
		expect(t, "the default namespace", func(event auditv1.Event) bool {
			return hasCluster(event, workspace.Spec.Cluster) && event.Verb == "create" && event.ObjectRef != nil && event.ObjectRef.Resource == "namespaces"
		})
	})
}

// TestAuditOfWorkspaces needs no audit policy: workspaces have their log without one.
func TestAuditOfWorkspaces(t *testing.T) {
	s := shardtesting.Start(t)
	admin, user := s.Admin(t), s.User(t)
	read := func(config *rest.Config, cluster, query string) (auditv1.EventList, error) {
		var list auditv1.EventList
		response, text := shardtesting.Send(t, shardtesting.At(config, cluster), http.MethodGet, "/audit"+query, "")
		if response.StatusCode != http.StatusOK {
			return list, fmt.Errorf("got %d: %s", response.StatusCode, text)
		}
		return list, json.Unmarshal([]byte(text), &list)
	}
	workspace := s.NewWorkspace(t, "root", "watched-over")
	cluster := workspace.Spec.Cluster

	t.Run("is for those who may get /audit in the workspace", func(t *testing.T) {
		other := s.NewWorkspace(t, "root", "other").Spec.Cluster
		grantPath(t, s, other, "user", "/audit")
		grantPath(t, s, cluster, "user", "/metrics")
		for name, refused := range map[string]*rest.Config{"a user of another workspace": user, "anonymous": rest.AnonymousClientConfig(user)} {
			if got := getStatus(t, shardtesting.At(refused, cluster), "/audit"); got != http.StatusForbidden {
				t.Errorf("%s: got %d, want 403", name, got)
			}
		}
		for path, want := range map[string]int{"nosuchcluster": http.StatusNotFound, "*": http.StatusNotFound} {
			if got := getStatus(t, shardtesting.At(s.Masters(t), path), "/audit"); got != want {
				t.Errorf("%s: got %d, want %d", path, got, want)
			}
		}
		if got, _ := shardtesting.Send(t, shardtesting.At(admin, cluster), http.MethodDelete, "/audit", ""); got.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("DELETE: got %d, want 405", got.StatusCode)
		}
	})
	t.Run("has changes and refused requests, and nothing of controllers", func(t *testing.T) {
		config := shardtesting.At(admin, cluster)
		config.UserAgent = "agent-of-the-administrator"
		c := s.Kubernetes(t, config)
		if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}, Data: map[string]string{"a": "content-of-the-body"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := getStatus(t, shardtesting.At(user, cluster), "/api/v1/secrets"); got != http.StatusForbidden {
			t.Fatalf("got %d, want 403", got)
		}
		wrong := rest.AnonymousClientConfig(shardtesting.At(admin, cluster))
		wrong.BearerToken = "wrong"
		if got := getStatus(t, wrong, "/api/v1/pods"); got != http.StatusUnauthorized {
			t.Fatalf("got %d, want 401", got)
		}
		open, err := c.CoreV1().Secrets("default").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer open.Stop()
		shardtesting.Eventually(t, "the events", func(context.Context) error {
			list, err := read(admin, cluster, "")
			if err != nil {
				return err
			}
			var changed, refused, unauthenticated, watched bool
			for i, event := range list.Items {
				what := event.User.Username + " " + event.Verb + " " + event.RequestURI
				changed = changed || what == "kcp-admin create /api/v1/namespaces/default/configmaps" && event.ObjectRef.Name == "first" && event.ResponseStatus.Code == http.StatusCreated
				refused = refused || what == "user list /api/v1/secrets" && event.ResponseStatus.Code == http.StatusForbidden
				unauthenticated = unauthenticated || what == " list /api/v1/pods" && event.ResponseStatus.Code == http.StatusUnauthorized
				watched = watched || strings.HasPrefix(what, "kcp-admin watch /api/v1/namespaces/default/secrets") && event.ResponseStatus.Code == http.StatusOK
				if event.User.Username == "system:apiserver" || event.Verb == "list" && event.ResponseStatus.Code == http.StatusOK || event.RequestObject != nil || len(event.User.Groups) > 0 || event.UserAgent == config.UserAgent {
					t.Errorf("got %v", event)
				}
				if i > 0 && event.StageTimestamp.Before(&list.Items[i-1].StageTimestamp) {
					t.Errorf("event %d is older than the one before", i)
				}
			}
			if !changed || !refused || !unauthenticated || !watched {
				return fmt.Errorf("changed: %t, refused: %t, unauthenticated: %t, watched: %t, %v", changed, refused, unauthenticated, watched, list)
			}
			return nil
		})
		if list, err := read(admin, cluster, "?limit=1"); err != nil || len(list.Items) != 1 {
			t.Errorf("with a limit: %d events, %v", len(list.Items), err)
		}
		if got := getStatus(t, shardtesting.At(admin, cluster), "/audit?limit=many"); got != http.StatusBadRequest {
			t.Errorf("with an invalid limit: got %d, want 400", got)
		}
	})
	t.Run("ends with the logical cluster", func(t *testing.T) {
		if err := s.Client(t, admin).Delete(shardtesting.In(t.Context(), "root"), workspace); err != nil {
			t.Fatal(err)
		}
		shardtesting.Eventually(t, "no log", func(context.Context) error {
			if got := getStatus(t, shardtesting.At(s.Masters(t), cluster), "/audit"); got != http.StatusNotFound {
				return fmt.Errorf("got %d, want 404", got)
			}
			return nil
		})
	})
}

func readEvents(file string) ([]auditv1.Event, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var events []auditv1.Event
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var event auditv1.Event
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			break // the line is not complete yet
		}
		events = append(events, event)
	}
	return events, lines.Err()
}
