package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	unread "github.com/atoll-dev/atoll/internal/writetimeout/testing"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	// delayFactor is by how much the requests of others may take longer while a user does not read.
	delayFactor = 2
	// measuringTime is less than the time after which servers end responses that no one reads.
	measuringTime = 15 * time.Second
	// shortDelay is a difference that does not count: that of the scheduler of a busy machine.
	shortDelay = 20 * time.Millisecond
)

// testUnreadResponses has a user send many requests through the front proxy and at the shard, and read none of the
// responses. Requests of another user in another workspace of the shard are served meanwhile, nearly as fast as before.
func (*processFaults) testUnreadResponses(f *processFaults) {
	mallory, bob := f.NewWorkspace(f.T, "unread", "mallory", shardtesting.OnShard(alpha)), f.NewWorkspace(f.T, "reading", "bob", shardtesting.OnShard(alpha))
	f.addContent(mallory)
	f.addContent(bob)
	direct := func(config *rest.Config) *rest.Config {
		config = rest.CopyConfig(config)
		config.Host = strings.Replace(config.Host, f.URL, f.ServerURL(alpha), 1)
		return config
	}
	for _, at := range []struct {
		name           string
		unread, served *rest.Config
	}{
		{"at the shard", direct(f.byName(mallory, "unread")), direct(f.byName(bob, "reading"))},
		{"through the front proxy", mallory, bob},
	} {
		f.compareDelays(at.name, at.unread, at.served)
	}
}

// byName returns a configuration with the name of the logical cluster instead of its path, which a shard does not resolve
// without root.
func (f *processFaults) byName(config *rest.Config, workspace string) *rest.Config {
	f.Helper()
	config = rest.CopyConfig(config)
	config.Host = f.URL + "/clusters/" + shardtesting.WaitReady(f.T, f.admin, "root", workspace).Spec.Cluster
	return config
}

// addContent creates objects that are more than a connection buffers.
func (f *processFaults) addContent(config *rest.Config) {
	f.Helper()
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		f.Fatal(err)
	}
	for n := range 10 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("content-", n)}, Data: map[string]string{"data": strings.Repeat("x", 20<<10)}}
		if _, err := clientset.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(f.Context(), object, metav1.CreateOptions{}); err != nil {
			f.Fatal(err)
		}
	}
}

// compareDelays measures requests without and with unread responses in turn, because other load of the machine changes.
func (f *processFaults) compareDelays(where string, mallory, bob *rest.Config) {
	f.Helper()
	turns, perTurn := scaled(1, 3), scaled(400, 2000)
	var without, with []time.Duration
	open := 0
	for range turns {
		without = append(without, f.p99(bob, perTurn))
		clients := f.sendUnread(mallory)
		with = append(with, f.p99(bob, perTurn))
		open = countOpen(clients)
		for _, c := range clients {
			c.Close()
		}
	}
	slices.Sort(without)
	slices.Sort(with)
	before, during := without[turns/2], with[turns/2]
	f.Logf("%s: p99 of another user %s without, %s with %d unread responses of one user (%d open at the end); the medians of %d turns of at most %d requests",
		where, before.Round(10*time.Microsecond), during.Round(10*time.Microsecond), unreadResponses(), open, turns, perTurn)
	if open == 0 {
		f.Errorf("%s: no response was unread while the requests were measured", where)
	}
	if during > delayFactor*before && during-before > shortDelay && f.comparesTimes() {
		f.Errorf("%s: p99 is %s, without unread responses %s", where, during, before)
	}
}

func unreadResponses() int { return scaled(100, 700) }

// sendUnread sends requests on connections with as many streams as servers accept, and returns when responses have begun.
func (f *processFaults) sendUnread(config *rest.Config) []*unread.Client {
	f.Helper()
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		f.Fatal(err)
	}
	address, prefix, _ := strings.Cut(strings.TrimPrefix(config.Host, "https://"), "/")
	const perConnection = 90
	var clients []*unread.Client
	for n := range unreadResponses() {
		if n%perConnection == 0 {
			c, err := unread.Dial(f.Context(), address, tlsConfig, 0)
			if err != nil {
				f.Fatal(err)
			}
			f.Cleanup(c.Close)
			clients = append(clients, c)
		}
		if err := clients[len(clients)-1].Get("/"+prefix+"/api/v1/namespaces/default/configmaps", "accept", "application/json"); err != nil {
			f.Fatal(err)
		}
	}
	shardtesting.Eventually(f.T, "responses begin", func(context.Context) error {
		begun := map[string]int{}
		for _, c := range clients {
			for status, n := range c.Count().Status {
				begun[status] += n
			}
		}
		if begun["200"] == 0 { // few have seats at once; the others wait
			return fmt.Errorf("by status: %v; %d are open", begun, countOpen(clients))
		}
		return nil
	})
	return clients
}

func countOpen(clients []*unread.Client) (open int) {
	for _, c := range clients {
		open += c.Count().Open
	}
	return open
}

// p99 returns the time that one of a hundred requests takes at least: a few clients read objects and lists, and write, as often
// as given, but no longer than measuringTime.
func (f *processFaults) p99(config *rest.Config, requests int) time.Duration {
	f.Helper()
	const clients = 4
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		f.Fatal(err)
	}
	defer httpClient.CloseIdleConnections()
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	end := time.Now().Add(measuringTime)
	for range clients {
		all.Go(func() {
			for n := range requests / clients {
				began := time.Now()
				if began.After(end) {
					return
				}
				if err := f.serve(httpClient, config.Host, n); err != nil {
					f.Errorf("a request of another user: %v", err)
					return
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(took) == 0 {
		f.FailNow()
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// serve sends one request.
func (f *processFaults) serve(client *http.Client, base string, n int) error {
	method, path, body := http.MethodGet, "/api/v1/namespaces/default/configmaps/content-0", ""
	switch n % 4 {
	case 1:
		path = "/apis"
	case 2:
		path = "/api/v1/namespaces/default/configmaps"
	case 3:
		method, body = http.MethodPatch, fmt.Sprintf(`{"metadata":{"annotations":{"n":"%d"}}}`, n)
	}
	request, err := http.NewRequestWithContext(f.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return nil
}
