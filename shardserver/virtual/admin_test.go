package virtual_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	view       = "/services/admin"
	shardsPath = "/apis/core.kcp.io/v1alpha1/shards"
	mergePatch = "application/merge-patch+json"
)

// send returns the status and the body of a response.
func send(t *testing.T, as *rest.Config, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	response, content := shardtesting.Send(t, as, method, path, body, headers...)
	return response.StatusCode, content
}

func TestAdminWorkspace(t *testing.T) {
	shard := shardtesting.Start(t)
	admin, masters, user := shard.Admin(t), shard.Masters(t), shard.User(t)
	member := rest.CopyConfig(masters)
	member.Impersonate = rest.ImpersonationConfig{UserName: "alice", Groups: []string{"system:authenticated", "system:kcp:admin"}}
	own := view + shardsPath + "/root"
	stored := func(t *testing.T) *corev1alpha1.Shard {
		t.Helper()
		out := &corev1alpha1.Shard{}
		if err := shard.Client(t, masters).Get(shardtesting.In(t.Context(), "root"), client.ObjectKey{Name: "root"}, out); err != nil {
			t.Fatal(err)
		}
		return out
	}

	t.Run("reads", func(t *testing.T) {
		for _, prefix := range []string{"", "/clusters/root", "/clusters/*", "/clusters/anything"} {
			status, body := send(t, admin, http.MethodGet, view+prefix+shardsPath, "")
			var list corev1alpha1.ShardList
			if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK || len(list.Items) != 1 || list.Items[0].Name != "root" || list.ResourceVersion == "" {
				t.Fatalf("%s: %d, %v: %s", prefix, status, err, body)
			}
			if _, marked := list.Items[0].Annotations["kcp.io/shard"]; marked {
				t.Errorf("got annotations %v", list.Items[0].Annotations)
			}
			for _, version := range []string{"", "0", list.ResourceVersion} {
				if status, body := send(t, admin, http.MethodGet, view+prefix+shardsPath+"/root?resourceVersion="+version, ""); status != http.StatusOK {
					t.Errorf("%s at version %q: %d: %s", prefix, version, status, body)
				}
			}
		}
		if status, body := send(t, admin, http.MethodGet, view+shardsPath+"/unknown", ""); status != http.StatusNotFound {
			t.Errorf("an unknown name: %d: %s", status, body)
		}
		if _, body := send(t, admin, http.MethodGet, view+shardsPath, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"); !strings.Contains(body, `"name":"Schedulable"`) {
			t.Errorf("the table is %s", body)
		}
	})

	t.Run("discovery", func(t *testing.T) {
		_, body := send(t, admin, http.MethodGet, view+"/apis/core.kcp.io/v1alpha1", "")
		var list metav1.APIResourceList
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		if len(list.APIResources) != 1 || fmt.Sprint(list.APIResources[0].Name, list.APIResources[0].Verbs) != "shards[get list patch update watch]" {
			t.Errorf("got %+v", list.APIResources)
		}
	})

	t.Run("members only", func(t *testing.T) {
		for _, path := range []string{view + shardsPath, own, view + "/apis", view + "/clusters/*" + shardsPath} {
			if status, body := send(t, user, http.MethodGet, path, ""); status != http.StatusForbidden || !strings.Contains(body, "system:kcp:admin or system:masters") {
				t.Errorf("%s: %d: %s", path, status, body)
			}
		}
		if status, body := send(t, member, http.MethodGet, own, ""); status != http.StatusOK {
			t.Errorf("a member of system:kcp:admin: %d: %s", status, body)
		}
	})

	t.Run("unserved", func(t *testing.T) {
		for what, request := range map[string]struct {
			method, path string
			status       int
		}{
			"create":                    {http.MethodPost, view + shardsPath, http.StatusForbidden},
			"delete":                    {http.MethodDelete, own, http.StatusForbidden},
			"delete all":                {http.MethodDelete, view + shardsPath, http.StatusForbidden},
			"status":                    {http.MethodGet, own + "/status", http.StatusForbidden},
			"another resource":          {http.MethodGet, view + "/api/v1/secrets", http.StatusForbidden},
			"a path with several parts": {http.MethodGet, view + "/clusters/root:org" + shardsPath, http.StatusForbidden},
			"a server-level path":       {http.MethodGet, view + "/metrics", http.StatusForbidden},
			"impersonation in the view": {http.MethodGet, own, http.StatusForbidden},
		} {
			var headers []string
			if strings.HasPrefix(what, "impersonation") {
				headers = []string{"Impersonate-User", "bob"}
			}
			if status, body := send(t, admin, request.method, request.path, `{}`, headers...); status != request.status {
				t.Errorf("%s: %d: %s", what, status, body)
			}
		}
	})

	t.Run("writes outside of the view", func(t *testing.T) {
		for _, cluster := range []string{"/clusters/root", "/clusters/system:shard"} {
			for what, request := range map[string]struct{ method, path, body string }{
				"create":              {http.MethodPost, shardsPath, `{"apiVersion":"core.kcp.io/v1alpha1","kind":"Shard","metadata":{"name":"new"},"spec":{"baseURL":"https://new.example"}}`},
				"patch":               {http.MethodPatch, shardsPath + "/root", `{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":""}}}`},
				"patch of the status": {http.MethodPatch, shardsPath + "/root/status", `{"status":{"load":{"memory":"1"}}}`},
				"delete":              {http.MethodDelete, shardsPath + "/root", ``},
				"delete all":          {http.MethodDelete, shardsPath, ``},
			} {
				contentType := "application/json"
				if request.method == http.MethodPatch {
					contentType = mergePatch
				}
				status, body := send(t, admin, request.method, cluster+request.path, request.body, "Content-Type", contentType)
				if status != http.StatusForbidden || cluster == "/clusters/root" && !strings.Contains(body, "/services/admin") {
					t.Errorf("%s in %s: %d: %s", what, cluster, status, body)
				}
			}
		}
	})

	t.Run("writes", func(t *testing.T) {
		allowed := `{"metadata":{"annotations":{"experimental.core.kcp.io/unschedulable":"true"}},"spec":{"resourceLimits":{"hard":{"workspaces":50}}}}`
		if status, body := send(t, admin, http.MethodPatch, own, allowed, "Content-Type", mergePatch); status != http.StatusOK {
			t.Fatalf("%d: %s", status, body)
		}
		if limits := stored(t).Spec.ResourceLimits; limits == nil || limits.Hard.Name("workspaces", "").Value() != 50 {
			t.Errorf("got limits %+v", limits)
		}
		shardtesting.Eventually(t, "the shard is cordoned", func(context.Context) error {
			if _, body := send(t, admin, http.MethodGet, own, ""); !strings.Contains(body, `"reason":"Cordoned"`) || !strings.Contains(body, "workspaces=-/50") {
				return fmt.Errorf("the Shard is %s", body)
			}
			return nil
		})
		shardtesting.Eventually(t, "the shard has applied both to its own Shard", func(ctx context.Context) error {
			own := &corev1alpha1.Shard{}
			if err := shard.Client(t, masters).Get(shardtesting.In(ctx, "system:shard"), client.ObjectKey{Name: "root"}, own); err != nil {
				return err
			}
			if _, cordoned := own.Annotations[corev1alpha1.UnschedulableAnnotationKey]; !cordoned || own.Spec.ResourceLimits == nil {
				return fmt.Errorf("it is %+v", own)
			}
			return nil
		})
		before := stored(t)
		for what, patch := range map[string]string{
			"an address":         `{"spec":{"externalURL":"https://other.example.com"}}`,
			"a label":            `{"metadata":{"labels":{"region":"eu"}}}`,
			"another annotation": `{"metadata":{"annotations":{"a":"b"}}}`,
			"an owner":           `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"y"}]}}`,
			"a finalizer":        `{"metadata":{"finalizers":["example.com/x"]}}`,
			"allowed and not":    `{"metadata":{"labels":{"region":"eu"}},"spec":{"resourceLimits":null}}`,
		} {
			status, body := send(t, admin, http.MethodPatch, own, patch, "Content-Type", mergePatch)
			if status != http.StatusForbidden || !strings.Contains(body, "spec.resourceLimits") || !strings.Contains(body, "experimental.core.kcp.io/unschedulable") {
				t.Errorf("%s: %d: %s", what, status, body)
			}
		}
		if status, body := send(t, admin, http.MethodPatch, own+"?fieldValidation=Strict", `{"spec":{"resourceLimits":{"hard":{"workspaces":"many"}}}}`, "Content-Type", mergePatch); status < 400 || status >= 500 {
			t.Errorf("a value of the wrong type: %d: %s", status, body)
		}
		if status, body := send(t, admin, http.MethodPatch, view+shardsPath+"/unknown", allowed, "Content-Type", mergePatch); status != http.StatusNotFound {
			t.Errorf("an unknown name: %d: %s", status, body)
		}
		if after := stored(t); after.Spec.ExternalURL != before.Spec.ExternalURL || len(after.Labels) != len(before.Labels) || len(after.Finalizers) != 0 || after.Spec.ResourceLimits == nil {
			t.Errorf("got %+v", after)
		}

		_, body := send(t, admin, http.MethodGet, own, "")
		var object map[string]any
		if err := json.Unmarshal([]byte(body), &object); err != nil {
			t.Fatal(err)
		}
		delete(object["metadata"].(map[string]any)["annotations"].(map[string]any), corev1alpha1.UnschedulableAnnotationKey)
		delete(object["spec"].(map[string]any), "resourceLimits")
		update, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		object["metadata"].(map[string]any)["resourceVersion"] = "1"
		stale, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if status, body := send(t, admin, http.MethodPut, own, string(stale)); status != http.StatusConflict {
			t.Errorf("an old version: %d: %s", status, body)
		}
		shardtesting.Eventually(t, "both are removed", func(context.Context) error {
			status, body := send(t, admin, http.MethodPut, own, string(update))
			if status == http.StatusOK {
				return nil
			}
			if status == http.StatusConflict { // the shard has written its status meanwhile
				object["metadata"].(map[string]any)["resourceVersion"] = stored(t).ResourceVersion
				update, err = json.Marshal(object)
			}
			return fmt.Errorf("%d, %v: %s", status, err, body)
		})
		if after := stored(t); after.Spec.ResourceLimits != nil || after.Annotations[corev1alpha1.UnschedulableAnnotationKey] != "" {
			t.Errorf("got %+v", after)
		}
	})
}
