package portal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/chromium"
)

// disclosure is an expression for the control that opens a text which is closed at first.
func disclosure(name string) string {
	return "[...document.querySelectorAll('summary')].find((e) => e.innerText.trim() === '" + name + "')"
}

// testRaw: the page contains the literal message of a server once, and shows it only to users who open it.
func testRaw(t *testing.T, page *chromium.Page, part string) {
	t.Helper()
	page.Wait("what the server says", disclosure("What the server says"))
	if text := page.Text(); strings.Contains(text, part) || strings.Count(text, "What the server says") != 1 {
		t.Errorf("the raw text is not behind one disclosure: %s", text)
	}
	page.Click(disclosure("What the server says"))
	page.WaitText(part)
	if text := page.Text(); strings.Count(text, part) != 1 {
		t.Errorf("the raw text is there more than once: %s", text)
	}
}

// testMistakes: the page reports each mistake once, in words: at the field of a form, and above a text.
func (e *env) testMistakes(t *testing.T) {
	page := e.open(t, "ada-token", tenant, "templates", "cache", "new")
	page.WaitTitle("Create Cache")
	page.Fill(chromium.Labelled("Name of the object"), "mine")
	page.Fill(chromium.Labelled("owner"), "team-a")
	page.Click(chromium.Named("Create Cache"))
	page.Wait("a message at the name", chromium.Labelled("Name of the object")+".closest('.field').querySelector('.error')?.innerText === 'There already is one with this name. Choose another.'")
	page.Fill(chromium.Labelled("Name of the object"), "Wrong Name")
	page.Fill(chromium.Labelled("owner"), "x")
	page.Fill(chromium.Labelled("replicas"), "9")
	page.Click(chromium.Named("Create Cache"))
	for label, message := range map[string]string{
		"Name of the object": "Lower-case letters, digits and dashes only, with a letter or digit at both ends.",
		"owner":              "At least 2 characters.",
		"replicas":           "At most 5.",
	} {
		page.Wait("the message at "+label, chromium.Labelled(label)+".closest('.field').querySelector('.error')?.innerText.includes('"+message+"')")
		page.Wait("a way from the summary to "+label, "[...document.querySelectorAll('.summary a')].some((e) => e.innerText === '"+label+"')")
		if text := page.Text(); strings.Count(text, message) != 1 {
			t.Errorf("%q is there %d times: %s", message, strings.Count(text, message), text)
		}
	}
	testRaw(t, page, "spec.replicas in body should be less than or equal to 5")
	page.Click(chromium.Named("replicas"))
	page.Wait("the field to have the focus", "document.activeElement === "+chromium.Labelled("replicas"))

	page.Click(chromium.Named("YAML"))
	page.Fill(chromium.Labelled("Object as YAML"), strings.Join([]string{
		"apiVersion: " + group + "/v1alpha1", "kind: Cache", "metadata: {name: wrong}",
		"spec: {owner: ANNA, size: huge, replicas: 0, labels: {tier: longer-than-ten}, ports: [{port: 1}, {port: 70000}, {port: 3}, {}], backup: {}, public: many}",
	}, "\n"))
	page.Click(chromium.Named("Create Cache"))
	page.WaitText("backup › schedule: A value is required.")
	var got []string
	page.Eval("[...document.querySelectorAll('.summary li')].map((e) => e.innerText).sort()", &got)
	want := []string{
		"backup › schedule: A value is required.",
		"labels › tier: At most 10 characters.",
		"owner: It has to match ^[a-z][a-z0-9-]*$.",
		"ports 2 › port: At most 65535.",
		"ports 4 › port: A value is required.",
		"ports: At most 3 entries.",
		"public: It has to be true or false.",
		"replicas: At least 1.",
		`size: One of "small", "medium", "large".`,
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	page.Click(chromium.Named("Cancel"))
	page.WaitTitle("Cache")
	e.quiet(t, page)
}

// testPolicy: the page shows the message of an admission policy's author to the user, who lacks no permission. Policies for instances are
// in the workspace of the provider.
func (e *env) testPolicy(t *testing.T) {
	const message = "queues have names of animals"
	for _, policy := range []map[string]any{
		{"kind": "ValidatingAdmissionPolicy", "spec": map[string]any{
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{"apiGroups": []any{group}, "apiVersions": []any{"*"}, "operations": []any{"CREATE"}, "resources": []any{"queues"}}}},
			"validations":      []any{map[string]any{"expression": "object.metadata.name != 'stone'", "message": message}},
		}},
		{"kind": "ValidatingAdmissionPolicyBinding", "spec": map[string]any{"policyName": "names", "validationActions": []any{"Deny"}}},
	} {
		policy["apiVersion"], policy["metadata"] = "admissionregistration.k8s.io/v1", map[string]any{"name": "names"}
		if err := e.admin.Create(t.Context(), &unstructured.Unstructured{Object: policy}); err != nil {
			t.Fatal(err)
		}
	}
	shardtesting.Eventually(t, "the policy to be in force", func(ctx context.Context) error {
		_, err := e.resource("queues").Create(ctx, queue("stone"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsInvalid(err) {
			return errors.Join(errors.New("not refused"), err)
		}
		return nil
	})
	page := e.open(t, "ada-token", tenant, "templates", "queue", "new")
	page.WaitTitle("Create Queue")
	page.Fill(chromium.Labelled("Name of the object"), "stone")
	page.Click(chromium.Named("Create Queue"))
	page.WaitText("A rule of the platform does not allow you to create queues: " + message)
	testRaw(t, page, "ValidatingAdmissionPolicy 'names'")
	page.Click(chromium.Named("Cancel"))
	e.quiet(t, page)
}
