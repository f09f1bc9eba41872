package etcdserver

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/status"
)

// answers are the responses of the members of an etcd in a test. Package etcdclient has tests with real members.
type answers struct {
	facts    etcd.Facts
	repaired []etcd.Action
	// defragmented counts the calls.
	defragmented int
}

func (a *answers) Credentials(map[string][]byte) (*tls.Config, error) { return &tls.Config{}, nil }

func (a *answers) Observe(_ context.Context, _ []etcd.Endpoint, _ *tls.Config, facts *etcd.Facts) {
	facts.ClusterID, facts.Listed, facts.Members = a.facts.ClusterID, a.facts.Listed, a.facts.Members
}

func (a *answers) Repair(_ context.Context, _ []etcd.Endpoint, _ *tls.Config, _ etcd.Facts, decision etcd.Decision) error {
	a.repaired = append(a.repaired, decision.Action)
	return nil
}

func (a *answers) Defragment(context.Context, []etcd.Endpoint, *tls.Config, etcd.Facts) error {
	a.defragmented++
	return nil
}

func healthyMember(clusterID string) etcd.Facts {
	return etcd.Facts{ClusterID: clusterID, Members: []etcd.MemberFacts{{Serving: true, ID: 1}}, Listed: []etcd.Listed{{ID: 1, Started: true}}}
}

// TestRecord checks the content of the bootstrap's record, where it is stored, and what survives its loss.
func TestRecord(t *testing.T) {
	lost := etcd.Facts{Members: []etcd.MemberFacts{{Empty: true}}}
	recordMap := func(data map[string]string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "root-etcd-record", Namespace: "kcp"}, Data: data}
	}
	for name, tc := range map[string]struct {
		record    client.Object // nil: the ConfigMap does not exist
		status    string        // ID in the status
		started   bool          // the StatefulSet exists
		served    bool
		confirmed string
		answer    etcd.Facts

		id, token string // in the ConfigMap afterwards; token is a part
		available string // reason
	}{
		"a first start has a token and no ID":               {nil, "", false, false, "", etcd.Facts{}, "", "kcp/root-etcd/uid", "NoQuorum"},
		"its ID is recorded once it serves":                 {recordMap(map[string]string{"token": "t"}), "", true, false, "", healthyMember("c1"), "c1", "t", "Quorum"},
		"an etcd of an older version is recorded":           {nil, "", true, true, "", healthyMember("c1"), "c1", "", "Quorum"},
		"one that has not served yet is a first start":      {nil, "", true, false, "", etcd.Facts{Members: []etcd.MemberFacts{{}}}, "", "kcp/root-etcd/uid", "Bootstrapping"},
		"a deleted record returns from the status":          {nil, "c1", true, true, "", healthyMember("c1"), "c1", "", "Quorum"},
		"also while the StatefulSet is deleted":             {nil, "c1", false, true, "", etcd.Facts{}, "c1", "", "NoQuorum"},
		"an emptied record does, too":                       {recordMap(nil), "c1", true, true, "", healthyMember("c1"), "c1", "", "Quorum"},
		"the loss of the only volume is reported":           {recordMap(map[string]string{"cluster-id": "c1"}), "c1", true, true, "", lost, "c1", "", "EtcdDataLost"},
		"a confirmed loss begins again with another token":  {recordMap(map[string]string{"cluster-id": "c1"}), "c1", true, true, "c1", lost, "", "kcp/root-etcd/uid/c1", "Quorum"},
		"a lost status does not make it a first start, too": {recordMap(map[string]string{"cluster-id": "c1"}), "", true, true, "", lost, "c1", "", "EtcdDataLost"},
	} {
		t.Run(name, func(t *testing.T) {
			root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp", UID: "uid"}}
			cluster := etcd.NewForShard(desired.NewRootShard(root))
			image := desired.Image{Repository: "atoll", Tag: "v1"}
			var objects []client.Object
			for _, secret := range []string{"root-etcd-ca", "root-etcd-server", "root-etcd-peer", "root-etcd-client"} {
				objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret, Namespace: "kcp"}, Data: map[string][]byte{"tls.crt": []byte("x")}})
			}
			if tc.started {
				set := cluster.StatefulSet(image)
				set.Status = appsv1.StatefulSetStatus{ReadyReplicas: 1, UpdatedReplicas: 1, ObservedGeneration: 1}
				objects = append(objects, set)
			}
			if tc.record != nil {
				objects = append(objects, tc.record)
			}
			c := apply.Cluster{Client: memory.NewClient(t, objects...)}
			report := &status.Report{}
			store := Store{Cluster: c, Report: report, Now: time.Now, Members: &answers{facts: tc.answer}}
			input := Input{Cluster: cluster, Image: image, Served: tc.served, Annotations: map[string]string{operatorv1alpha1.AnnotationEtcdDataLost: tc.confirmed}}
			if tc.status != "" {
				input.Status = &operatorv1alpha1.EtcdStatus{ClusterID: tc.status}
			}
			if err := store.ObserveManaged(t.Context(), input); err != nil {
				t.Fatal(err)
			}
			for _, step := range []func(context.Context) error{store.Configure, store.AdmitRollout, store.Apply, store.Repair} {
				if err := step(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			record := &corev1.ConfigMap{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "kcp", Name: "root-etcd-record"}, record); err != nil {
				t.Fatal(err)
			}
			if record.Data["cluster-id"] != tc.id || !strings.Contains(record.Data["token"], tc.token) || (tc.token == "") != (record.Data["token"] == "") {
				t.Errorf("the record is %v", record.Data)
			}
			id := ""
			if out := store.Status(input.Status); out != nil {
				id = out.ClusterID
			}
			if id != tc.id {
				t.Errorf("the status has ID %q", id)
			}
			conditions := report.Conditions(nil, 1)
			if condition := meta.FindStatusCondition(conditions, operatorv1alpha1.ConditionEtcdAvailable); condition == nil || condition.Reason != tc.available {
				t.Errorf("got %+v", condition)
			}
		})
	}
}

// TestReplaced records the etcd that a Restore has filled in place of the one that was lost, in the ConfigMap and in the status.
func TestReplaced(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp", UID: "uid"}}
	cluster := etcd.NewForShard(desired.NewRootShard(root))
	set := cluster.StatefulSet(desired.Image{Repository: "atoll", Tag: "v1"})
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "root-etcd-record", Namespace: "kcp"}, Data: map[string]string{"cluster-id": "c1"}}
	c := apply.Cluster{Client: memory.NewClient(t, set, record, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "root-etcd-client", Namespace: "kcp"}})}
	for _, tc := range []struct{ replaced, want string }{{"other", "c1"}, {"c1", "c2"}} {
		store := Store{Cluster: c, Report: &status.Report{}, Now: time.Now, Members: &answers{facts: healthyMember("c2")}}
		err := store.ObserveManaged(t.Context(), Input{Cluster: cluster, Served: true, Replaced: tc.replaced, Status: &operatorv1alpha1.EtcdStatus{ClusterID: "c1"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Configure(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(record), record); err != nil {
			t.Fatal(err)
		}
		if record.Data["cluster-id"] != tc.want || store.Status(nil).ClusterID != tc.want {
			t.Errorf("after a Restore in place of %s: the record is %v, the status has %s", tc.replaced, record.Data, store.Status(nil).ClusterID)
		}
	}
}

// TestDefragment checks that a value of the annotation is handled once, and only while all members serve.
func TestDefragment(t *testing.T) {
	root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp", UID: "uid"}}
	cluster := etcd.NewForShard(desired.NewRootShard(root))
	for name, tc := range map[string]struct {
		requested, handled string
		answer             etcd.Facts
		calls              int
	}{
		"a new value":                    {"2", "1", healthyMember("c1"), 1},
		"a handled value":                {"1", "1", healthyMember("c1"), 0},
		"no value":                       {"", "1", healthyMember("c1"), 0},
		"a member that does not serve":   {"2", "1", etcd.Facts{Members: []etcd.MemberFacts{{}}}, 0},
		"a bootstrap that is not stored": {"2", "1", etcd.Facts{ClusterID: "c1", Members: []etcd.MemberFacts{{Serving: true}}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			members := &answers{facts: tc.answer}
			set := cluster.StatefulSet(desired.Image{Repository: "atoll", Tag: "v1"})
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "root-etcd-client", Namespace: "kcp"}}
			store := Store{Cluster: apply.Cluster{Client: memory.NewClient(t, set, secret)}, Report: &status.Report{}, Now: time.Now, Members: members}
			err := store.ObserveManaged(t.Context(), Input{
				Cluster: cluster, Served: true, Annotations: map[string]string{operatorv1alpha1.AnnotationDefragmentEtcd: tc.requested},
				Status: &operatorv1alpha1.EtcdStatus{ClusterID: "c1", Defragmented: tc.handled},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Repair(t.Context()); err != nil {
				t.Fatal(err)
			}
			handled := store.Status(nil).Defragmented
			if want := map[int]string{0: tc.handled, 1: tc.requested}[tc.calls]; members.defragmented != tc.calls || handled != want {
				t.Errorf("defragmented %d times, %q is handled", members.defragmented, handled)
			}
		})
	}
}
