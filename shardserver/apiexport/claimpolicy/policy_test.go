package claimpolicy

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"

	adminv1alpha1 "github.com/atoll-dev/atoll/api/admin/v1alpha1"
)

func newPolicy(name, claimer, claimed string, providers ...adminv1alpha1.PolicySubject) *adminv1alpha1.PermissionClaimPolicy {
	return &adminv1alpha1.PermissionClaimPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: adminv1alpha1.PermissionClaimPolicySpec{
			Claims:    []adminv1alpha1.ClaimerGroups{{Claimer: claimer, Groups: []string{claimed}}},
			Providers: providers,
		},
	}
}

func TestAllowClaim(t *testing.T) {
	one, other := newPolicy("one", "a.dev", "x.dev"), newPolicy("other", "b.dev", "y.dev")
	for name, test := range map[string]struct {
		policies Policies
		own      sets.Set[string]
		claimed  string
		allowed  bool
	}{
		"no policy":                        {nil, sets.New("a.dev"), "x.dev", false},
		"a policy":                         {Policies{one}, sets.New("a.dev"), "x.dev", true},
		"any policy":                       {Policies{other, one}, sets.New("a.dev"), "x.dev", true},
		"one of several groups":            {Policies{one}, sets.New("z.dev", "a.dev"), "x.dev", true},
		"another claimer":                  {Policies{one}, sets.New("b.dev"), "x.dev", false},
		"another group":                    {Policies{one}, sets.New("a.dev"), "y.dev", false},
		"entries of two policies":          {Policies{one, other}, sets.New("a.dev"), "y.dev", false},
		"no wildcards":                     {Policies{newPolicy("all", "a.dev", "*")}, sets.New("a.dev"), "x.dev", false},
		"an export without any resource":   {Policies{one}, sets.New[string](), "x.dev", false},
		"the claimed group as the claimer": {Policies{one}, sets.New("x.dev"), "a.dev", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.policies.AllowClaim(test.own, test.claimed); got != test.allowed {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestReservedBy(t *testing.T) {
	who := &user.DefaultInfo{Name: "alice", Groups: []string{"team"}}
	alice := adminv1alpha1.PolicySubject{Kind: "User", Name: "alice"}
	team := adminv1alpha1.PolicySubject{Kind: "Group", Name: "team"}
	for name, test := range map[string]struct {
		policies Policies
		group    string
		by       string
	}{
		"no policy":                       {nil, "x.dev", ""},
		"a group that no policy names":    {Policies{newPolicy("one", "a.dev", "x.dev")}, "y.dev", ""},
		"nobody is listed":                {Policies{newPolicy("one", "a.dev", "x.dev")}, "x.dev", "one"},
		"the group that claims":           {Policies{newPolicy("one", "a.dev", "x.dev")}, "a.dev", "one"},
		"a user":                          {Policies{newPolicy("one", "a.dev", "x.dev", alice)}, "x.dev", ""},
		"a group":                         {Policies{newPolicy("one", "a.dev", "x.dev", team)}, "x.dev", ""},
		"a user with the name of a group": {Policies{newPolicy("one", "a.dev", "x.dev", adminv1alpha1.PolicySubject{Kind: "Group", Name: "alice"})}, "x.dev", "one"},
		"a group with the name of a user": {Policies{newPolicy("one", "a.dev", "x.dev", adminv1alpha1.PolicySubject{Kind: "User", Name: "team"})}, "x.dev", "one"},
		"every policy has to list":        {Policies{newPolicy("one", "a.dev", "x.dev", alice), newPolicy("two", "b.dev", "x.dev")}, "x.dev", "two"},
		"no wildcards":                    {Policies{newPolicy("one", "a.dev", "x.dev", adminv1alpha1.PolicySubject{Kind: "User", Name: "*"})}, "x.dev", "one"},
	} {
		t.Run(name, func(t *testing.T) {
			if by, reserved := test.policies.ReservedBy(test.group, who); by != test.by || reserved != (test.by != "") {
				t.Errorf("got %q, %v", by, reserved)
			}
		})
	}
}
