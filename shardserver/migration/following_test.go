package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/transfer"
)

// configMaps are known to the replica, widgets only to another one.
const configMaps, widgets = "/core/configmaps", "/example.com/widgets/customresources"

// followingsEnv is an origin with the followings of one replica.
type followingsEnv struct {
	*followings
	client *clientv3.Client
}

func newFollowingsEnv(t *testing.T) *followingsEnv {
	t.Helper()
	client := etcdtest.NewClient(t, etcdtest.Start(t))
	etcdtest.DetectFeatures(t, client)
	keys := transfer.New(transfer.Config{
		Client: client, Prefix: "/registry", Storages: func(context.Context) ([]string, error) { return []string{configMaps}, nil },
		Scan: func(context.Context) ([]string, error) { return []string{configMaps, widgets}, nil },
	})
	return &followingsEnv{newFollowings(keys), client}
}

func (e *followingsEnv) put(t *testing.T, cluster logicalcluster.Name, name, content string, options ...clientv3.OpOption) {
	t.Helper()
	if _, err := e.client.Put(t.Context(), "/registry"+configMaps+"/"+cluster.String()+"/"+name, content, options...); err != nil {
		t.Fatal(err)
	}
}

func (e *followingsEnv) begun(t *testing.T, cluster logicalcluster.Name) *following {
	t.Helper()
	one, err := e.begin(t.Context(), cluster, transfer.Key{})
	if err != nil {
		t.Fatal(err)
	}
	return one
}

func changesOf(t *testing.T, one *following, since int64) *transfer.Changes {
	t.Helper()
	changes, err := one.changes(t.Context(), since)
	if err != nil || changes == nil {
		t.Fatalf("%v, %v", changes, err)
	}
	return changes
}

func TestFollowings(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("with etcd", func(t *testing.T) {
		e := newFollowingsEnv(t)
		cluster := logicalcluster.MustParseName("moving")
		e.put(t, cluster, "a", "1")

		first := e.begun(t, cluster)
		changesOf(t, first, 0)
		second := e.begun(t, cluster)
		if _, err := e.get(cluster, first.id); !apierrors.IsConflict(err) || len(e.byCluster) != 1 {
			t.Errorf("the following of an earlier attempt: %v; there are %d", err, len(e.byCluster))
		}
		if _, err := e.get(logicalcluster.MustParseName("other"), second.id); !apierrors.IsConflict(err) {
			t.Errorf("that of another logical cluster: %v", err)
		}
		if one, err := e.get(cluster, second.id); err != nil || one != second {
			t.Errorf("got %v", err)
		}
		changesOf(t, second, 0)

		for i := 1; i < maxFollowings; i++ {
			e.begun(t, logicalcluster.MustParseName(fmt.Sprint("moving-", i)))
		}
		if _, err := e.begin(t.Context(), logicalcluster.MustParseName("more"), transfer.Key{}); !apierrors.IsTooManyRequests(err) || len(e.byCluster) != maxFollowings {
			t.Errorf("one too many: %v; there are %d", err, len(e.byCluster))
		}
		e.begun(t, cluster) // in place of its own
		e.forget(second)    // which has ended
		if len(e.byCluster) != maxFollowings {
			t.Errorf("there are %d", len(e.byCluster))
		}
		e.endFor(cluster)
		e.endFor(cluster)
		if len(e.byCluster) != maxFollowings-1 {
			t.Errorf("after the end of one there are %d", len(e.byCluster))
		}
		e.close()
		if len(e.byCluster) != 0 {
			t.Errorf("%d are left", len(e.byCluster))
		}
	})
}

// addIdle adds a following with the id "1" that has read nothing.
func (f *followings) addIdle(cluster logicalcluster.Name) {
	one := &following{id: "1", cluster: cluster, ready: make(chan struct{}), stop: func() {}}
	close(one.ready)
	one.expiry = time.AfterFunc(f.timeout, func() { f.forget(one) })
	f.byCluster[cluster] = one
}

// TestFollowingsExpire: a destination that is gone leaves nothing.
func TestFollowingsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowings(transfer.New(transfer.Config{Storages: func(context.Context) ([]string, error) { return nil, fmt.Errorf("no etcd") }}))
		cluster := logicalcluster.MustParseName("moving")
		f.addIdle(cluster)
		time.Sleep(f.timeout - time.Second)
		if _, err := f.get(cluster, "1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(f.timeout - time.Second)
		synctest.Wait()
		if len(f.byCluster) != 1 {
			t.Error("one that is used has ended")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(f.byCluster) != 0 {
			t.Error("one that is not used is left")
		}
	})
}

// TestCompare has what happens at the origin between the last list of changes and the hand-over.
func TestCompare(t *testing.T) {
	e := newFollowingsEnv(t)
	defer e.close()
	cluster := logicalcluster.MustParseName("moving")
	granted, err := e.client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	e.put(t, cluster, "a", "1")
	e.put(t, cluster, "event", "1", clientv3.WithLease(granted.ID))
	one := e.begun(t, cluster)
	check := func(copied transfer.Digest, want string) {
		t.Helper()
		if got, err := one.compare(t.Context(), copied); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	check(nil, "the destination has not read what there is")
	copied := changesOf(t, one, 0).Digest
	check(copied, "")
	check(nil, configMaps+" has 2 keys at the origin and 0 at the destination")
	damaged := transfer.Digest{configMaps: {Keys: 2}}
	check(damaged, configMaps+" has other content at the destination than at the origin")

	changesOf(t, one, 0)
	if _, err := e.client.Revoke(t.Context(), granted.ID); err != nil {
		t.Fatal(err)
	}
	check(copied, "") // the copy expires, too

	copied = changesOf(t, one, 0).Digest
	e.put(t, cluster, "a", "2")
	check(copied, configMaps+" has changed since the destination has read it, or was not known to this replica of the shard")

	copied = changesOf(t, one, 0).Digest
	if _, err := e.client.Delete(t.Context(), "/registry"+configMaps+"/moving/a"); err != nil {
		t.Fatal(err)
	}
	check(copied, configMaps+" has lost a key since the destination has read it")

	// Another replica has stored an object before this one knows its API.
	if _, err := e.client.Put(t.Context(), "/registry"+widgets+"/moving/w", "1"); err != nil {
		t.Fatal(err)
	}
	copied = changesOf(t, one, 0).Digest
	check(copied, widgets+" has changed since the destination has read it, or was not known to this replica of the shard")
}

// roundTrip answers requests in the process.
type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// TestKeepFollowing: an origin does not forget a destination that is busy with its copy for long.
func TestKeepFollowing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowings(transfer.New(transfer.Config{}))
		cluster := logicalcluster.MustParseName("moving")
		f.addIdle(cluster)
		origin := &originClient{cluster: cluster, following: "1", peer: &peer{http: &http.Client{Transport: roundTrip(func(req *http.Request) (*http.Response, error) {
			wanted := entriesRequest{}
			if err := json.NewDecoder(req.Body).Decode(&wanted); err != nil {
				return nil, err
			}
			_, err := f.get(cluster, wanted.Following)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, err
		})}}}
		stop := origin.keepFollowing(t.Context())
		time.Sleep(10 * f.timeout)
		synctest.Wait()
		if len(f.byCluster) != 1 {
			t.Error("the origin has forgotten it")
		}
		stop()
		time.Sleep(2 * f.timeout)
		synctest.Wait()
		if len(f.byCluster) != 0 {
			t.Error("one that is not used is left")
		}
	})
}

// newOrigin returns a client of an origin that answers each request in the same way, and counts them.
func newOrigin(status int, body func() io.Reader) (client *originClient, requests *int) {
	requests = new(int)
	return &originClient{cluster: logicalcluster.MustParseName("moving"), peer: &peer{http: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		*requests++
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: io.NopCloser(body())}, nil
	})}}}, requests
}

// repeat returns the same body for each response.
func repeat(body string) func() io.Reader { return func() io.Reader { return strings.NewReader(body) } }

// TestOriginThatNeverReads: an origin that does not wait before it says that it has not read all values causes few requests, and is given up.
func TestOriginThatNeverReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin, requests := newOrigin(http.StatusOK, repeat(`{"following":"1"}`))
		c := &copying{origin: origin, checkWanted: func(context.Context) error { return nil }}
		start := time.Now()
		_, err := c.changes(t.Context(), 0)
		if took := time.Since(start); err == nil || took != maxFirstRead || *requests > int(maxFirstRead/followingWait) {
			t.Errorf("%d requests in %s: %v", *requests, took, err)
		}
	})
}

// endless is a string in JSON without an end.
type endless struct{ begun bool }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	if !e.begun {
		e.begun = true
		return copy(p, `{"following":"`), nil
	}
	return len(p), nil
}

// TestLimitsOfResponses: what exceeds a limit is said, with what can be done about it.
func TestLimitsOfResponses(t *testing.T) {
	origin, _ := newOrigin(http.StatusOK, func() io.Reader { return &endless{} })
	if _, err := origin.entries(t.Context(), []transfer.Key{{Resource: configMaps, Name: "default/a"}}); err == nil || !strings.Contains(err.Error(), "an object of /core/configmaps is larger than shards transfer, about 12 MiB: make it smaller") {
		t.Errorf("entries: %v", err)
	}
	origin, _ = newOrigin(http.StatusOK, repeat("{"))
	if _, err := origin.entries(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "decoding the response") {
		t.Errorf("a short response: %v", err)
	}
}

func TestFirstPage(t *testing.T) {
	keys := func(n, length int) []transfer.Key {
		return slices.Repeat([]transfer.Key{{Resource: "/r", Name: strings.Repeat("x", length-2)}}, n)
	}
	for name, tc := range map[string]struct {
		keys []transfer.Key
		want int
	}{
		"few keys":             {keys(3, 100), 3},
		"many keys":            {keys(2*maxKeysPerRequest, 100), maxKeysPerRequest},
		"long names":           {keys(10, maxKeyBytesPerRequest/4), 4},
		"a name above a limit": {keys(2, maxKeyBytesPerRequest+1), 1},
	} {
		if got := len(firstPage(tc.keys)); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// TestRetryLater: a destination that is told when to ask again does so then, whatever the origin says.
func TestRetryLater(t *testing.T) {
	for seconds, want := range map[int]time.Duration{7: 7 * time.Second, 1 << 30: maxPauseInterval} {
		body, err := json.Marshal(apierrors.NewTooManyRequests("too early", seconds).Status())
		if err != nil {
			t.Fatal(err)
		}
		origin, _ := newOrigin(http.StatusTooManyRequests, repeat(string(body)))
		_, err = origin.pause(t.Context())
		if later := (*retryLaterError)(nil); !errors.As(fmt.Errorf("pausing writes: %w", err), &later) || later.after != want || !strings.Contains(err.Error(), "too early") {
			t.Errorf("%d seconds: %v", seconds, err)
		}
	}
}

// TestLostHandOver: the origin has handed over, and the destination has not received that. It asks again before it copies anything, and the
// origin sends no content any more.
func TestLostHandOver(t *testing.T) {
	origin, requests := newOrigin(http.StatusOK, repeat(`{"cluster":{},"epoch":3,"parentShard":"root"}`))
	d, c := &destinationService{}, &copying{origin: origin} // it has nothing by which it could copy
	for _, again := range []bool{true, false} {
		handed, err := d.takeOver(t.Context(), c, &claimedCluster{&storedCluster{}, again}, !again)
		if err != nil || handed.Epoch != 3 {
			t.Errorf("got %+v, %v", handed, err)
		}
	}
	if *requests != 2 {
		t.Errorf("%d requests", *requests)
	}

	migration := newMigration(migrationv1alpha1.LogicalClusterMigrationPhaseMigrating)
	cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1alpha1.MovedToAnnotationKey: "beta"}}}
	for _, op := range []operation{opChanges, opEntries, opPause, opResume} {
		_, err := (&originService{}).run(httptest.NewRequest(http.MethodPost, "/", http.NoBody), Origin{Migration: migration, Cluster: cluster}, controller.Request{}, op)
		if !apierrors.IsConflict(err) {
			t.Errorf("%s: %v", op, err)
		}
	}
}
