//go:build e2e

package charts

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// freeAddress returns an address for the front proxy that this host and the pods reach: one of the first sixteen of Services, which the
// API server does not assign automatically.
func freeAddress(t *testing.T, c *cluster) string {
	t.Helper()
	api, services := &corev1.Service{}, &corev1.ServiceList{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, api); err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(api.Spec.ClusterIP, "443"), 2*time.Second)
	if err != nil || strings.Count(api.Spec.ClusterIP, ".") != 3 || os.Getenv("E2E_ROUTE") == "forward" {
		t.Skipf("this host does not reach Services of the cluster (%v), and a port-forward ends with the pods that a rollout replaces", err)
	}
	conn.Close()
	if err := c.List(t.Context(), services); err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, service := range services.Items {
		used[service.Spec.ClusterIP] = true
	}
	for last := 11; last < 16; last++ {
		if address := api.Spec.ClusterIP[:strings.LastIndex(api.Spec.ClusterIP, ".")+1] + strconv.Itoa(last); !used[address] {
			return address
		}
	}
	t.Fatal("no address for the front proxy is free")
	return ""
}

// useWorkspaces creates a workspace on each shard, with the kubeconfig of the Secret, and an object in each. A front proxy learns of a
// workspace from a watch, and the node learns of a front proxy's endpoints from another: both may lag behind conditions.
func (j *journey) useWorkspaces(t *testing.T) {
	secret := &corev1.Secret{}
	j.kcp.get(t, secret, "admin-kubeconfig")
	loaded, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		t.Fatal(err)
	}
	admin, err := clientcmd.NewNonInteractiveClientConfig(*loaded, "base", nil, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	admin.QPS = -1
	at := func(path string) client.Client {
		c, err := client.New(shardtesting.At(admin, path), client.Options{Scheme: j.kcp.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	j.work = map[string]*traffic{}
	eventually(t, time.Minute, "a response of the front proxy", func(ctx context.Context) error {
		return at("root").List(ctx, &tenancyv1alpha1.WorkspaceList{})
	})
	for _, shard := range []string{"root", "alpha"} {
		shardtesting.NewWorkspace(t, at("root"), "root", "on-"+shard, shardtesting.OnShard(shard))
		j.work[shard] = &traffic{Client: at("root:on-" + shard), object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "load"}}}
		eventually(t, time.Minute, "the front proxy's route to the workspace on "+shard, func(ctx context.Context) error {
			return j.work[shard].Create(ctx, j.work[shard].object)
		})
	}
}

// traffic writes one object of a workspace again and again, and reads it after each write.
type traffic struct {
	client.Client
	object   *corev1.ConfigMap
	requests int
	failures []string
}

func (t *traffic) run(ctx context.Context) {
	for ; ctx.Err() == nil; t.requests++ {
		if err := t.once(ctx); err != nil && ctx.Err() == nil {
			t.failures = append(t.failures, err.Error())
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond): // leaves processor time for the replacement of pods
		}
	}
}

func (t *traffic) once(ctx context.Context) error {
	value := strconv.Itoa(t.requests)
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"data":{"n":"`+value+`"}}`))
	if err := t.Patch(ctx, t.object.DeepCopy(), patch); err != nil {
		return err
	}
	read := &corev1.ConfigMap{}
	if err := t.Get(ctx, client.ObjectKeyFromObject(t.object), read); err != nil {
		return err
	}
	if read.Data["n"] != value {
		return fmt.Errorf("read %q after %q was written", read.Data["n"], value)
	}
	return nil
}

// startWork uses all workspaces until the function that it returns is called, which reports failures.
func (j *journey) startWork(t *testing.T) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, work := range j.work {
		running.Go(func() { work.run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
		for shard, work := range j.work {
			t.Logf("%s: %d writes and reads", shard, work.requests)
			if len(work.failures) > 0 {
				t.Errorf("%d of %d requests to a workspace on %s failed, the first: %s", len(work.failures), work.requests, shard, work.failures[0])
			}
		}
	}
}

// checkWork uses each workspace once.
func (j *journey) checkWork(t *testing.T) {
	t.Helper()
	for shard, work := range j.work {
		if err := work.once(t.Context()); err != nil {
			t.Errorf("the workspace on %s: %v", shard, err)
		}
	}
}

// readMetrics reads the metrics as the service account that metrics.reader names, and without a token.
func (j *journey) readMetrics(t *testing.T) {
	t.Helper()
	const name = operatorRelease + "-metrics"
	service, secret, token := &corev1.Service{}, &corev1.Secret{}, &authenticationv1.TokenRequest{}
	j.operator.get(t, service, name)
	j.operator.get(t, secret, name)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: "default"}}
	if err := j.operator.SubResource("token").Create(t.Context(), account, token); err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{
		Host:            "https://" + net.JoinHostPort(service.Spec.ClusterIP, "8443"),
		TLSClientConfig: rest.TLSClientConfig{CAData: secret.Data["ca.crt"], ServerName: name + "." + operatorNamespace + ".svc"},
	}
	for _, tc := range []struct {
		token, want string
		status      int
	}{{"", "", http.StatusUnauthorized}, {token.Status.Token, "controller_runtime", http.StatusOK}} {
		config.BearerToken = tc.token
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, time.Minute, "an answer of the metrics endpoint", func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+"/metrics", nil)
			if err != nil {
				return err
			}
			response, err := c.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			if err != nil {
				return err
			}
			if response.StatusCode != tc.status || !strings.Contains(string(body), tc.want) {
				return fmt.Errorf("%s, %d bytes", response.Status, len(body))
			}
			return nil
		})
	}
}

// dump logs what is not ready, and the warnings.
func (j *journey) dump(t *testing.T) {
	pods, events := &corev1.PodList{}, &corev1.EventList{}
	for _, list := range []client.ObjectList{pods, events} {
		if err := j.kcp.List(t.Context(), list); err != nil {
			t.Error(err)
		}
	}
	for _, pod := range pods.Items {
		t.Logf("pod %s/%s: %s %+v", pod.Namespace, pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
	}
	for _, event := range events.Items {
		if event.Type == corev1.EventTypeWarning {
			t.Logf("%s %s/%s: %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Namespace, event.InvolvedObject.Name, event.Reason, event.Message)
		}
	}
}
