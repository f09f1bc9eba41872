package sinks

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/filters/audit"
)

func TestMain(m *testing.M) {
	// The library that rotates files has a goroutine for each file that it has opened, and no way to end it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

// clusters are logical clusters by name.
type clusters map[string]*corev1alpha1.LogicalCluster

func (c clusters) Get(ctx context.Context, _, _ string) (*corev1alpha1.LogicalCluster, error) {
	name, _ := logicalcluster.From(ctx)
	if cluster := c[name.String()]; cluster != nil {
		return cluster, nil
	}
	return nil, apierrors.NewNotFound(corev1alpha1.Resource("logicalclusters"), name.String())
}

func newCluster(path string, labels map[string]string) *corev1alpha1.LogicalCluster {
	return &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{corev1alpha1.LogicalClusterPathAnnotationKey: path}}}
}

var installation = clusters{
	"root": {}, "o": newCluster("root:org", map[string]string{"tier": "gold"}), "t": newCluster("root:org:team", nil), "x": newCluster("root:organisation", map[string]string{"tier": "gold"}),
}

func newEvent(t *testing.T, cluster string) *auditinternal.Event {
	t.Helper()
	return &auditinternal.Event{
		Level: auditinternal.LevelMetadata, Stage: auditinternal.StageResponseComplete, Verb: "create", AuditID: "id",
		Annotations: map[string]string{"kcp.io/cluster": cluster}, RequestURI: "/in/" + cluster,
	}
}

func TestSelector(t *testing.T) {
	gold := &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}}
	for name, test := range map[string]struct {
		selector Selector
		want     string
	}{
		"a path and what is below":   {Selector{Paths: []string{"root:org"}}, "o t"},
		"root":                       {Selector{Paths: []string{"root"}}, "o root t x"},
		"names":                      {Selector{LogicalClusters: []string{"t", "x", "gone"}}, "gone t x"},
		"labels":                     {Selector{LabelSelector: gold}, "o x"},
		"a path with labels":         {Selector{Paths: []string{"root:org"}, LabelSelector: gold}, "o"},
		"names with labels":          {Selector{LogicalClusters: []string{"t", "x"}, LabelSelector: gold}, "x"},
		"a path or a name":           {Selector{Paths: []string{"root:org:team"}, LogicalClusters: []string{"x"}}, "t x"},
		"all labels":                 {Selector{LabelSelector: &metav1.LabelSelector{}}, "o root t x"},
		"a path that does not exist": {Selector{Paths: []string{"root:o"}}, ""},
	} {
		selects, err := newSelector(&Sink{Workspaces: test.selector}, installation)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, cluster := range []string{"o", "root", "t", "x", "gone", "*", ""} {
			if selects(newEvent(t, cluster)) {
				got = append(got, cluster)
			}
		}
		slices.Sort(got)
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestInvalidConfigurations(t *testing.T) {
	const head = "apiVersion: audit.kcp.io/v1alpha1\nkind: AuditSinks\nsinks:\n"
	for content, want := range map[string]string{
		"sinks: []\nkind: AuditSinks":       "apiVersion: Unsupported value",
		"apiVersion: audit.kcp.io/v1alpha1": "kind: Unsupported value",
		head + "- {nme: a}":                 `unknown field "nme"`,
		head + "- {policyFile: p, workspaces: {paths: [root]}, file: {path: f}}":                                                                                         "sinks[0].name: Required value",
		head + "- {name: A, policyFile: p, workspaces: {paths: [root]}, file: {path: f}}":                                                                                "sinks[0].name: Invalid value",
		head + "- {name: a, workspaces: {paths: [root]}, file: {path: f}}":                                                                                               "sinks[0].policyFile: Required value",
		head + "- {name: a, policyFile: p, file: {path: f}}":                                                                                                             "sinks[0].workspaces: Required value",
		head + "- {name: a, policyFile: p, workspaces: {paths: [root]}}":                                                                                                 "want one of webhook, file and s3",
		head + "- {name: a, policyFile: p, workspaces: {paths: [root]}, file: {path: f}, webhook: {kubeconfigFile: k}}":                                                  "want one of webhook, file and s3",
		head + "- {name: a, policyFile: p, workspaces: {paths: ['*']}, file: {path: f}}":                                                                                 "sinks[0].workspaces.paths[0]: Invalid value",
		head + "- {name: a, policyFile: p, workspaces: {logicalClusters: ['root:a']}, file: {path: f}}":                                                                  "sinks[0].workspaces.logicalClusters[0]: Invalid value",
		head + "- {name: a, policyFile: p, workspaces: {labelSelector: {matchLabels: {a b: c}}}, file: {path: f}}":                                                       "sinks[0].workspaces.labelSelector.matchLabels: Invalid value",
		head + "- {name: a, policyFile: p, bufferSize: -1, workspaces: {paths: [root]}, file: {path: f, maxBackups: -1}}":                                                "sinks[0].file.maxBackups: Invalid value",
		head + "- {name: a, policyFile: p, workspaces: {paths: [root]}, s3: {endpointURL: 'https://s', addressingStyle: x}}":                                             "sinks[0].s3.bucket: Required value",
		head + "- &a {name: a, policyFile: p, workspaces: {paths: [root]}, file: {path: f}}\n- *a":                                                                       "sinks[1].name: Duplicate value",
		head + "- {name: a, policyFile: p, bufferSize: 10001, workspaces: {paths: [root]}, file: {path: f}}":                                                             "sinks[0].bufferSize: Invalid value",
		head + "- {name: a, policyFile: p, workspaces: {paths: [root]}, file: {path: f}}\n- {name: b, policyFile: p, workspaces: {paths: [root]}, file: {path: x/../f}}": "sinks[1].file.path: Duplicate value",
		head + "- {name: a, policyFile: missing, workspaces: {paths: [root]}, file: {path: f}}":                                                                          "sinks[0]: loading audit policy file",
	} {
		file := filepath.Join(t.TempDir(), "sinks.yaml")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(file, installation); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %q", content, err, want)
		}
	}
}

// receiver is a server that receives events as a webhook does, and as objects of a bucket.
type receiver struct {
	*httptest.Server
	mu      sync.Mutex
	webhook []auditv1.Event
	batches []int // of webhook
	objects map[string][]auditv1.Event
	// blocked requests wait until it is closed.
	blocked chan struct{}
	arrived chan struct{}
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{objects: map[string][]auditv1.Event{}, blocked: make(chan struct{}), arrived: make(chan struct{}, 1)}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/blocked" {
		select {
		case r.arrived <- struct{}{}:
		default:
		}
		<-r.blocked
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Method == http.MethodPut {
		w.Header().Set("ETag", `"0"`)
		lines := bufio.NewScanner(req.Body)
		for lines.Scan() {
			var event auditv1.Event
			if json.Unmarshal(lines.Bytes(), &event) == nil && event.Kind == "Event" { // otherwise it frames the body
				r.objects[req.URL.Path] = append(r.objects[req.URL.Path], event)
			}
		}
		if lines.Err() != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
		return
	}
	var list auditv1.EventList
	if err := json.NewDecoder(req.Body).Decode(&list); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.webhook, r.batches = append(r.webhook, list.Items...), append(r.batches, len(list.Items))
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
}

// write writes files into a directory.
func write(t *testing.T, directory string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(directory, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func kubeconfig(url string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: %q}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n", url)
}

// TestSinks sends events to each kind of sink, and ends the sinks, which sends what is in their buffers.
func TestSinks(t *testing.T) {
	to := newReceiver(t)
	directory := t.TempDir()
	write(t, directory, map[string]string{
		"kubeconfig": kubeconfig(to.URL + "/webhook"), "id": "id", "secret": "secret",
		"policy.yaml": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [create]}]\n",
		"sinks.yaml": `
apiVersion: audit.kcp.io/v1alpha1
kind: AuditSinks
sinks:
- {name: team, policyFile: policy.yaml, workspaces: {paths: ["root:org:team"]}, webhook: {kubeconfigFile: kubeconfig}}
- {name: gold, policyFile: policy.yaml, workspaces: {labelSelector: {matchLabels: {tier: gold}}}, file: {path: gold.log, maxSizeMegabytes: 1}}
- {name: archive, policyFile: policy.yaml, workspaces: {paths: [root]}, s3: {endpointURL: ` + to.URL + `, bucket: bucket, prefix: installation, region: r, accessKeyIDFile: id, secretAccessKeyFile: secret}}
`,
	})
	routes, err := Load(filepath.Join(directory, "sinks.yaml"), installation)
	if err != nil {
		t.Fatal(err)
	}
	router := audit.NewRouter(routes)
	stop := make(chan struct{})
	if err := router.Run(stop); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range []string{"root", "o", "t", "x", "gone", "*"} {
		read := newEvent(t, cluster)
		read.Verb = "get"
		router.ProcessEvents(newEvent(t, cluster), read)
	}
	close(stop)
	router.Shutdown()

	expect := func(what string, events []auditv1.Event, want string) {
		t.Helper()
		var got []string
		for _, event := range events {
			got = append(got, event.Verb+event.RequestURI)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
	}
	expect("the webhook", to.webhook, "create/in/t")
	var stored []auditv1.Event
	for key, events := range to.objects {
		if !strings.HasPrefix(key, "/bucket/installation/archive/2") || !strings.HasSuffix(key, ".jsonl") {
			t.Errorf("got object %q", key)
		}
		stored = append(stored, events...)
	}
	expect("the bucket", stored, "create/in/o create/in/root create/in/t create/in/x")
	var logged []auditv1.Event
	content, err := os.ReadFile(filepath.Join(directory, "gold.log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var event auditv1.Event
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		logged = append(logged, event)
	}
	expect("the file", logged, "create/in/o create/in/x")
}

// TestSlowSink sends events to a webhook that does not answer: no event waits for it, and what its buffer cannot hold is dropped.
func TestSlowSink(t *testing.T) {
	to := newReceiver(t)
	directory := t.TempDir()
	write(t, directory, map[string]string{
		"kubeconfig": kubeconfig(to.URL + "/blocked"), "policy.yaml": "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n",
		"sinks.yaml": `
apiVersion: audit.kcp.io/v1alpha1
kind: AuditSinks
sinks: [{name: slow, policyFile: policy.yaml, bufferSize: 100, workspaces: {paths: [root]}, webhook: {kubeconfigFile: kubeconfig}}]
`,
	})
	routes, err := Load(filepath.Join(directory, "sinks.yaml"), installation)
	if err != nil {
		t.Fatal(err)
	}
	router := audit.NewRouter(routes)
	stop := make(chan struct{})
	if err := router.Run(stop); err != nil {
		t.Fatal(err)
	}
	const buffer = 100
	for range buffer { // a batch
		router.ProcessEvents(newEvent(t, "t"))
	}
	<-to.arrived
	for range 3 * buffer {
		if !router.ProcessEvents(newEvent(t, "t")) {
			t.Fatal("a request fails with the sink")
		}
	}
	close(to.blocked)
	close(stop)
	router.Shutdown()
	if len(to.batches) == 0 {
		t.Fatal("nothing was delivered")
	}
	if got, want := len(to.webhook), to.batches[0]+buffer; got != want {
		t.Errorf("%d of %d events were delivered, want the %d of the first batch and those of the buffer", got, 4*buffer, to.batches[0])
	}
}
