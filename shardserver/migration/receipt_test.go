package migration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	shardingv1alpha1 "github.com/atoll-dev/atoll/api/sharding/v1alpha1"
	"github.com/atoll-dev/atoll/internal/etcdtest"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/internal/reservedkeys"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// TestReceipts follows the annotation through moves: it has one receipt of each shard that does not have the logical cluster.
func TestReceipts(t *testing.T) {
	value := ""
	for epoch, move := range []struct{ from, to string }{{"alpha", "beta"}, {"beta", "gamma"}, {"gamma", "alpha"}, {"alpha", "beta"}} {
		value = receiptsAtHandOver(value, receipt{Shard: move.from, Epoch: int64(epoch + 1), MAC: "m"})
		value = receiptsAtArrival(value, move.to)
	}
	for shard, want := range map[string]int64{"alpha": 4, "beta": 0, "gamma": 3} {
		if got, found := receiptOf(value, shard); got.Epoch != want || found != (want > 0) {
			t.Errorf("shard %s: %+v", shard, got)
		}
	}
	for i := range 100 {
		value = receiptsAtHandOver(value, receipt{Shard: fmt.Sprint("shard-", i), Epoch: int64(i + 10), MAC: strings.Repeat("m", 43)})
	}
	if got := parseReceipts(value); len(got) != maxReceipts || got[0].Shard != "shard-99" {
		t.Errorf("%d receipts, the first is %+v", len(got), got[0])
	}
	value = receiptsAtHandOver(value, receipt{Shard: "last", Epoch: 1, MAC: "m"})
	if _, found := receiptOf(value, "last"); !found {
		t.Error("receipts of others, which may be planted, push out that of the shard")
	}
	if receiptsAtArrival("no JSON", "beta") != "" || receiptsAtArrival(strings.Repeat(" ", maxReceiptBytes+1), "beta") != "" {
		t.Error("an annotation that another shard has planted is kept")
	}
}

// readsOnly refuses transactions, as etcd does those that may write while its space is used up.
type readsOnly struct{ clientv3.KV }

func (readsOnly) Txn(context.Context) clientv3.Txn { return refusedTxn{} }

type refusedTxn struct{ clientv3.Txn }

func (t refusedTxn) If(...clientv3.Cmp) clientv3.Txn      { return t }
func (t refusedTxn) Then(...clientv3.Op) clientv3.Txn     { return t }
func (t refusedTxn) Else(...clientv3.Op) clientv3.Txn     { return t }
func (refusedTxn) Commit() (*clientv3.TxnResponse, error) { return nil, rpctypes.ErrNoSpace }

func TestReceiptKey(t *testing.T) {
	etcd := etcdtest.NewClient(t, etcdtest.Start(t))
	created, err := ReceiptKey(t.Context(), etcd, "/registry")
	if err != nil {
		t.Fatal(err)
	}
	read, err := ReceiptKey(t.Context(), etcd, "/registry")
	if err != nil || string(read) != string(created) || len(read) != receiptKeyBytes {
		t.Errorf("got %d bytes, %v", len(read), err)
	}
	if read, err = ReceiptKey(t.Context(), readsOnly{etcd}, "/registry"); err != nil || string(read) != string(created) {
		t.Errorf("a start writes to etcd: %v", err)
	}
	other, err := ReceiptKey(t.Context(), etcd, "/other")
	if err != nil || string(other) == string(created) {
		t.Errorf("two shards have one secret: %v", err)
	}
	if _, err := etcd.Put(t.Context(), reservedkeys.Receipts("/registry"), "short"); err != nil {
		t.Fatal(err)
	}
	if _, err := ReceiptKey(t.Context(), etcd, "/registry"); err == nil {
		t.Error("a short secret is used")
	}
}

// TestIsOutdated: a shard fences what it has signed itself, and nothing that only others say.
func TestIsOutdated(t *testing.T) {
	secret, name := []byte("secret"), logicalcluster.MustParseName("moving")
	const uid = types.UID("u")
	for sentence, tc := range map[string]struct {
		annotations map[string]string
		change      func(*claim)
		uid         string
		want        bool
	}{
		"it has handed it over, and does not know that":  {want: true},
		"while it paused writes":                         {annotations: map[string]string{corev1alpha1.WritesPausedAnnotationKey: "t"}, want: true},
		"it had been moved here before":                  {annotations: map[string]string{corev1alpha1.EpochAnnotationKey: "2"}, want: true},
		"it has come back since":                         {annotations: map[string]string{corev1alpha1.EpochAnnotationKey: "4"}},
		"it knows it":                                    {annotations: map[string]string{corev1alpha1.EpochAnnotationKey: "3", corev1alpha1.MovedToAnnotationKey: "beta"}},
		"it arrives again":                               {annotations: map[string]string{corev1alpha1.ArrivingAnnotationKey: "m"}},
		"the other shard has invented it":                {change: func(c *claim) { c.MAC = sign([]byte("other"), name, uid, c.Epoch) }},
		"it has signed an earlier epoch":                 {change: func(c *claim) { c.Epoch++ }},
		"it has signed another logical cluster":          {change: func(c *claim) { c.MAC = sign(secret, logicalcluster.MustParseName("other"), uid, c.Epoch) }},
		"the claim is about an earlier one of that name": {uid: "v"},
		"it is handed over to this shard":                {change: func(c *claim) { c.Holder = "alpha" }},
		"nobody has it":                                  {change: func(c *claim) { c.Holder = "" }},
		"no name":                                        {change: func(c *claim) { c.Cluster = "-" }},
		"root":                                           {change: func(c *claim) { c.Cluster, c.MAC = "root", sign(secret, logicalcluster.Root, uid, c.Epoch) }},
	} {
		stored := &storedCluster{object: map[string]any{"metadata": map[string]any{"uid": "u", "annotations": map[string]any{}}}}
		if tc.uid != "" {
			stored.object["metadata"].(map[string]any)["uid"] = tc.uid
		}
		for key, value := range tc.annotations {
			stored.object["metadata"].(map[string]any)["annotations"].(map[string]any)[key] = value
		}
		one := claim{Cluster: "moving", UID: uid, Holder: "beta", Epoch: 3, MAC: sign(secret, name, uid, 3)}
		if tc.change != nil {
			tc.change(&one)
		}
		if got := isOutdated("alpha", secret, stored, one); got != tc.want {
			t.Errorf("%s: %t", sentence, got)
		}
		if !tc.want {
			continue
		}
		annotations := stored.annotations()
		markOutdated(annotations, one, time.Now())
		if movestate.Of(annotations) != movestate.MovedAway || epochOf(annotations) != 3 || annotations[corev1alpha1.MovedToAnnotationKey] != "beta" {
			t.Errorf("%s: %v", sentence, annotations)
		}
	}
	if isOutdated("alpha", secret, nil, claim{Cluster: "moving", Holder: "beta"}) {
		t.Error("there is no logical cluster, and it is outdated")
	}
}

// TestClaims: a shard answers with what it has got from the one that asks, in parts.
func TestClaims(t *testing.T) {
	newCluster := func(name string, annotations map[string]string, from ...string) *corev1alpha1.LogicalCluster {
		cluster := &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{UID: types.UID(name), Annotations: map[string]string{logicalcluster.AnnotationKey: name}}}
		for key, value := range annotations {
			cluster.Annotations[key] = value
		}
		for i, shard := range from {
			cluster.Annotations[corev1alpha1.ReceiptsAnnotationKey] = receiptsAtHandOver(cluster.Annotations[corev1alpha1.ReceiptsAnnotationKey], receipt{Shard: shard, Epoch: int64(i + 1), MAC: "m"})
		}
		return cluster
	}
	all := []*corev1alpha1.LogicalCluster{
		newCluster("own", nil), newCluster("second", nil, "alpha", "beta"), newCluster("first", nil, "alpha"), newCluster("foreign", nil, "beta", "alphabet"),
		newCluster("arriving", map[string]string{corev1alpha1.ArrivingAnnotationKey: "m"}, "alpha"),
		newCluster("passed", map[string]string{corev1alpha1.MovedToAnnotationKey: "delta", corev1alpha1.OwnerShardAnnotationKey: "beta"}, "alpha", "gamma"),
	}
	got := claimsFor(all, "alpha", "gamma", "")
	want := []claim{{"first", "first", "gamma", "gamma", 1, "m"}, {"passed", "passed", "delta", "beta", 1, "m"}, {"second", "second", "gamma", "gamma", 1, "m"}}
	if fmt.Sprint(got.Claims) != fmt.Sprint(want) || got.More {
		t.Errorf("got %+v", got)
	}
	for i := range maxClaimsPerResponse {
		all = append(all, newCluster(fmt.Sprintf("many-%04d", i), nil, "alpha"))
	}
	seen := map[string]bool{}
	for after, more := "", true; more; {
		got := claimsFor(all, "alpha", "gamma", after)
		for _, one := range got.Claims {
			seen[one.Cluster], after = true, one.Cluster
		}
		more = got.More
	}
	if len(seen) != maxClaimsPerResponse+3 {
		t.Errorf("%d logical clusters", len(seen))
	}
}

// TestReportOfOutdated: a migration whose origin was restored to a state of before the hand-over goes on to its end.
func TestReportOfOutdated(t *testing.T) {
	type phase = migrationv1alpha1.LogicalClusterMigrationPhaseType
	const migrating, aborting, cleanup = migrationv1alpha1.LogicalClusterMigrationPhaseMigrating, migrationv1alpha1.LogicalClusterMigrationPhaseAborting, migrationv1alpha1.LogicalClusterMigrationPhaseOriginCleanup
	for name, tc := range map[string]struct {
		phase               phase
		origin, destination string
		before              bool
		want                shardingv1alpha1.LogicalClusterMigrationState
	}{
		"the home has not heard of the hand-over":      {phase: migrating, origin: "alpha", destination: "beta", want: shardingv1alpha1.MigrationMovedAway},
		"the abort has come too late":                  {phase: aborting, origin: "alpha", destination: "beta", want: shardingv1alpha1.MigrationMovedAway},
		"it waits for the origin":                      {phase: cleanup, origin: "alpha", destination: "beta", want: shardingv1alpha1.MigrationCleaned},
		"it is a later one, of another origin":         {phase: migrating, origin: "gamma", destination: "beta"},
		"it was aborted, and another one has moved it": {phase: aborting, origin: "alpha", destination: "gamma", want: shardingv1alpha1.MigrationAborted},
		"the shard has not been told yet":              {phase: migrating, origin: "alpha", destination: "beta", before: true, want: shardingv1alpha1.MigrationAccepted},
	} {
		annotations := map[string]string{logicalcluster.AnnotationKey: "moving", corev1alpha1.MigratingAnnotationKey: modelReference}
		if !tc.before {
			markOutdated(annotations, claim{Cluster: "moving", Holder: "beta", Epoch: 3}, time.Now())
		}
		o := Origin{Shard: "alpha", Reference: modelReference, Cluster: &corev1alpha1.LogicalCluster{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}, Migration: &migrationv1alpha1.LogicalClusterMigration{
			Spec:   migrationv1alpha1.LogicalClusterMigrationSpec{LogicalCluster: "moving", DestinationShard: tc.destination},
			Status: migrationv1alpha1.LogicalClusterMigrationStatus{Phase: tc.phase, OriginShard: tc.origin},
		}}
		got := shardingv1alpha1.LogicalClusterMigrationState("")
		if report := o.Report(); report != nil {
			got = report.State
		}
		if got != tc.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
