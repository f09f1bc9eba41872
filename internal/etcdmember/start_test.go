package etcdmember

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestDecideStart(t *testing.T) {
	member := func(name, peer string, started bool) *etcdserverpb.Member {
		m := &etcdserverpb.Member{ID: 10, Name: name, PeerURLs: []string{peer}}
		if started {
			m.ClientURLs = []string{"https://" + name}
		}
		return m
	}
	const self = "https://e-1.e.ns.svc:2380"
	others := []*etcdserverpb.Member{member("e-0", "https://e-0.e.ns.svc:2380", true), member("e-2", "https://e-2.e.ns.svc:2380", true)}
	with := func(m *etcdserverpb.Member) []*etcdserverpb.Member { return append(others[:2:2], m) }
	bootstrapped, fresh := Record{ClusterID: "c1", Token: "token"}, Record{Token: "token"}
	const existing = "e-0=https://e-0.e.ns.svc:2380,e-1=" + self + ",e-2=https://e-2.e.ns.svc:2380"
	for name, tc := range map[string]struct {
		record Record
		listed []*etcdserverpb.Member
		start  Start
		reason string
	}{
		"the first start of all members in parallel":              {fresh, nil, Start{Token: "token"}, ""},
		"the slowest of them":                                     {fresh, with(member("e-1", self, false)), Start{Token: "token"}, ""},
		"a member that the operator added":                        {bootstrapped, with(member("", self, false)), Start{Existing: true, Cluster: existing}, ""},
		"one that it added before the bootstrap was recorded":     {fresh, with(member("", self, false)), Start{Existing: true, Cluster: existing}, ""},
		"the last of the bootstrap, after it was recorded":        {bootstrapped, with(member("e-1", self, false)), Start{Existing: true, Cluster: existing}, ""},
		"a member that has lost its volume":                       {bootstrapped, with(member("e-1", self, true)), Start{}, "it was member a"},
		"one that lost it before the bootstrap was recorded":      {fresh, with(member("e-1", self, true)), Start{}, "it was member a"},
		"a member that was removed":                               {bootstrapped, others, Start{}, "does not list it"},
		"a recorded cluster without a quorum":                     {bootstrapped, nil, Start{}, "no quorum of its members answers"},
		"a cluster of an older version without a quorum, neither": {Record{}, nil, Start{}, "started by an older version"},
	} {
		t.Run(name, func(t *testing.T) {
			start, reason := decideStart(tc.record, "e-1", self, tc.listed)
			if start != tc.start || !strings.Contains(reason, tc.reason) || (reason == "") != (tc.reason == "") {
				t.Errorf("got %+v, %q", start, reason)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	given := []string{"/etcd", "--name=e-1", "--initial-cluster-state=new", "--initial-cluster-token=old"}
	for name, tc := range map[string]struct {
		start Start
		want  string
	}{
		"data has its own identity": {Start{}, strings.Join(given, " ")},
		"a bootstrap":               {Start{Token: "t"}, strings.Join(given, " ") + " --initial-cluster-token=t"},
		"a new member":              {Start{Existing: true, Cluster: "a=b"}, strings.Join(given, " ") + " --initial-cluster-state=existing --initial-cluster=a=b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(tc.start.apply(given), " "); got != tc.want {
				t.Errorf("got %s", got)
			}
		})
	}
	if got, err := Arguments(t.Context(), given); err != nil || len(got) != len(given) {
		t.Errorf("without a record: %v, %v", got, err)
	}
	t.Setenv(RecordEnv, t.TempDir())
	if _, err := Arguments(t.Context(), given); err == nil {
		t.Error("arguments without a data directory are accepted")
	}
}
