package etcd_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/internal/etcdmember"
)

const clusterID = "c1"

// facts are the facts of three members that serve and are recorded, with changes.
func facts(changes ...func(*etcd.Facts)) etcd.Facts {
	f := etcd.Facts{Record: etcdmember.Record{ClusterID: clusterID, Token: "token"}, ClusterID: clusterID}
	for i := range 3 {
		id := uint64(i + 1)
		f.Members = append(f.Members, etcd.MemberFacts{Serving: true, ID: id, Leader: i == 0})
		f.Listed = append(f.Listed, etcd.Listed{ID: id, Index: i, Started: true})
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func empty(indexes ...int) func(*etcd.Facts) {
	return func(f *etcd.Facts) {
		for _, i := range indexes {
			f.Members[i] = etcd.MemberFacts{Empty: true}
		}
	}
}

func down(indexes ...int) func(*etcd.Facts) {
	return func(f *etcd.Facts) {
		for _, i := range indexes {
			f.Members[i] = etcd.MemberFacts{}
		}
	}
}

func removed(i int) func(*etcd.Facts) {
	return func(f *etcd.Facts) { f.Listed = append(f.Listed[:i:i], f.Listed[i+1:]...) }
}

// learner makes a member a learner with a new ID.
func learner(i int, started bool) func(*etcd.Facts) {
	return func(f *etcd.Facts) {
		f.Listed[i] = etcd.Listed{ID: 9, Index: i, Learner: true, Started: started}
		if f.Members[i].Serving {
			f.Members[i].ID = 9
		}
	}
}

func noQuorum(f *etcd.Facts) { f.ClusterID, f.Listed = "", nil }

func record(r etcdmember.Record) func(*etcd.Facts) { return func(f *etcd.Facts) { f.Record = r } }

func single(f *etcd.Facts) { f.Members, f.Listed = f.Members[:1], f.Listed[:min(1, len(f.Listed))] }

func replaced(id string) func(*etcd.Facts) { return func(f *etcd.Facts) { f.Replaced = id } }

func confirmed(id string) func(*etcd.Facts) { return func(f *etcd.Facts) { f.Confirmed = id } }

func TestDecide(t *testing.T) {
	fresh, adopted := record(etcdmember.Record{Token: "token"}), record(etcdmember.Record{})
	for name, tc := range map[string]struct {
		facts             etcd.Facts
		action            etcd.Action
		id                uint64
		available, health string // reasons
		text              string // of either message
	}{
		"members that serve need nothing": {facts(), etcd.None, 0, "", "MembersServe", "all 3 members serve"},

		"an alarm about space is reported": {facts(func(f *etcd.Facts) { f.Members[1].NoSpace = true }), etcd.None, 0, "", "NoSpace", "operator.kcp.io/defragment-etcd"},

		"a bootstrap is recorded once all members serve":        {facts(fresh), etcd.Record, 0, "", "MembersServe", ""},
		"not while one has not served yet":                      {facts(fresh, down(2)), etcd.None, 0, "Bootstrapping", "MemberUnavailable", "2 of 3 members serve, and the first start waits for all"},
		"not while one has not published that it serves":        {facts(fresh, func(f *etcd.Facts) { f.Listed[1].Started = false }), etcd.None, 0, "Bootstrapping", "MembersServe", ""},
		"members that have no quorum yet are waited for":        {facts(fresh, noQuorum, down(0, 1, 2)), etcd.None, 0, "Bootstrapping", "", "0 of 3"},
		"a cluster of an older version is recorded as it is":    {facts(adopted), etcd.Record, 0, "", "MembersServe", ""},
		"its lost member is replaced, too":                      {facts(adopted, empty(1)), etcd.Remove, 2, "", "ReplacingMember", "step 1 of 3"},
		"a single member is recorded":                           {facts(fresh, single), etcd.Record, 0, "", "MembersServe", ""},
		"the volumes of another cluster are refused":            {facts(record(etcdmember.Record{ClusterID: "c0"})), etcd.None, 0, "EtcdForeignCluster", "EtcdForeignCluster", "set the annotation operator.kcp.io/etcd-data-lost=c0"},
		"those that a Restore has filled are recorded":          {facts(record(etcdmember.Record{ClusterID: "c0"}), replaced("c0")), etcd.Record, 0, "", "MembersServe", ""},
		"also while one of them is down":                        {facts(record(etcdmember.Record{ClusterID: "c0"}), replaced("c0"), down(2)), etcd.Record, 0, "", "MemberUnavailable", ""},
		"a Restore of another cluster does not count":           {facts(record(etcdmember.Record{ClusterID: "c0"}), replaced("c2")), etcd.None, 0, "EtcdForeignCluster", "EtcdForeignCluster", ""},
		"a Restore of an etcd that was not recorded, neither":   {facts(record(etcdmember.Record{ClusterID: "c0"}), replaced("")), etcd.None, 0, "EtcdForeignCluster", "EtcdForeignCluster", ""},
		"volumes that are empty after a Restore are a loss":     {facts(record(etcdmember.Record{ClusterID: "c0"}), replaced("c0"), noQuorum, empty(0, 1, 2)), etcd.None, 0, "EtcdDataLost", "EtcdDataLost", ""},
		"unless the loss of the recorded one is confirmed":      {facts(record(etcdmember.Record{ClusterID: "c0"}), confirmed("c0")), etcd.Forget, 0, "", "MembersServe", ""},
		"a member that is down may return":                      {facts(down(1)), etcd.None, 0, "", "MemberUnavailable", "root-etcd-1 does not serve"},
		"a member of no pod is reported":                        {facts(func(f *etcd.Facts) { f.Listed = append(f.Listed, etcd.Listed{ID: 255, Index: -1}) }), etcd.None, 0, "", "UnknownMember", "etcdctl member remove ff"},
		"a lost member is removed":                              {facts(empty(1)), etcd.Remove, 2, "", "ReplacingMember", "step 1 of 3"},
		"not while another one is down":                         {facts(empty(1), down(2)), etcd.None, 0, "", "MemberLost", "describe pods root-etcd-2"},
		"once removed it is added as a learner":                 {facts(empty(1), removed(1)), etcd.Add, 0, "", "ReplacingMember", "step 2 of 3"},
		"not while another one is down, either":                 {facts(empty(1), removed(1), down(0)), etcd.None, 0, "", "MemberLost", ""},
		"a removed member with data is not added":               {facts(down(1), removed(1)), etcd.None, 0, "", "MemberUnavailable", "delete pvc/data-root-etcd-1 pod/root-etcd-1"},
		"a learner that starts is waited for":                   {facts(empty(1), learner(1, false)), etcd.None, 0, "", "ReplacingMember", "step 2 of 3"},
		"a learner that serves is promoted":                     {facts(learner(1, true)), etcd.Promote, 9, "", "ReplacingMember", "step 3 of 3"},
		"a learner that is down is waited for":                  {facts(down(1), learner(1, true)), etcd.None, 0, "", "ReplacingMember", ""},
		"a learner that was lost again is removed":              {facts(empty(1), learner(1, true)), etcd.Remove, 9, "", "ReplacingMember", "lost its volume again"},
		"a member that was listed and never started does it":    {facts(empty(1), func(f *etcd.Facts) { f.Listed[1].Started = false }), etcd.None, 0, "", "MemberUnavailable", ""},
		"members without a quorum that are down may return":     {facts(noQuorum, down(0, 1, 2)), etcd.None, 0, "", "", ""},
		"one lost member without a quorum waits for the others": {facts(noQuorum, empty(0), down(1)), etcd.None, 0, "", "", ""},
		"two lost members lose the quorum":                      {facts(noQuorum, empty(0, 2)), etcd.None, 0, "EtcdQuorumLost", "EtcdQuorumLost", "the volumes of root-etcd-0 and root-etcd-2 are empty, so 1 of 3"},
		"a confirmation does not give up data that is left":     {facts(noQuorum, empty(0, 2), confirmed(clusterID)), etcd.None, 0, "EtcdQuorumLost", "EtcdQuorumLost", ""},
		"the loss of all volumes is reported":                   {facts(noQuorum, empty(0, 1, 2)), etcd.None, 0, "EtcdDataLost", "EtcdDataLost", "operator.kcp.io/etcd-data-lost=c1"},
		"a confirmed loss begins again":                         {facts(noQuorum, empty(0, 1, 2), confirmed(clusterID)), etcd.Forget, 0, "", "", ""},
		"the confirmation of another loss does not":             {facts(noQuorum, empty(0, 1, 2), confirmed("c0")), etcd.None, 0, "EtcdDataLost", "EtcdDataLost", ""},
		"the lost volume of a single member is reported":        {facts(single, noQuorum, empty(0)), etcd.None, 0, "EtcdDataLost", "EtcdDataLost", "(root-etcd-0) is empty"},
		"so is that of an older version that was never recorded": {
			facts(single, adopted, noQuorum, empty(0)), etcd.None, 0, "EtcdDataLost", "EtcdDataLost", "operator.kcp.io/etcd-data-lost=unrecorded"},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := newManagedEtcd(t, &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To(int32(len(tc.facts.Members)))})
			decision := cluster.Decide(tc.facts)
			if decision.Action != tc.action || decision.ID != tc.id || decision.Available.Reason != tc.available || decision.Healthy.Reason != tc.health {
				t.Errorf("got %+v", decision)
			}
			if text := decision.Available.Message + decision.Healthy.Message; !strings.Contains(text, tc.text) {
				t.Errorf("the messages are %q", text)
			}
		})
	}
	t.Run("a trial on an emptyDir begins again by itself", func(t *testing.T) {
		cluster := newManagedEtcd(t, &operatorv1alpha1.ManagedEtcd{Storage: &operatorv1alpha1.EtcdStorage{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		if decision := cluster.Decide(facts(single, noQuorum, empty(0))); decision.Action != etcd.Forget {
			t.Errorf("got %+v", decision)
		}
	})
}

func TestNewRecord(t *testing.T) {
	cluster := newManagedEtcd(t, nil)
	first := cluster.NewRecord("")
	if first.Token != cluster.NewRecord("").Token || first.Token == cluster.NewRecord("c1").Token || first.ClusterID != "" {
		t.Errorf("got %+v", first)
	}
}
