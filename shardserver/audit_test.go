package shardserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
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
	if err := os.WriteFile(filepath.Join(directory, "policy.yaml"), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	s := shardtesting.Start(t, func(o *options.Options) {
		o.Audit.PolicyFile = filepath.Join(directory, "policy.yaml")
		o.Audit.LogOptions.Path = log
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
	t.Run("events of loopback writes have the logical cluster", func(t *testing.T) {
		workspace := s.NewWorkspace(t, "root", "audited")
		expect(t, "the default namespace", func(event auditv1.Event) bool {
			return hasCluster(event, workspace.Spec.Cluster) && event.Verb == "create" && event.ObjectRef != nil && event.ObjectRef.Resource == "namespaces"
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
