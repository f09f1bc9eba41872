package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/internal/rebalance"
	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestRebalance(t *testing.T) {
	over := rebalance.Decision{
		Over:  []string{`shard "a" has 9 workspaces, its share is 5`},
		Moves: []rebalance.Move{{LogicalCluster: moves.LogicalCluster{Name: logicalcluster.MustParseName("x"), Path: "root:x"}, From: "a", To: "b", Reason: "r"}},
	}
	always := []operatorv1alpha1.RebalanceWindow{{Start: "00:00", Duration: metav1.Duration{Duration: 24 * 3600e9}}}
	never := []operatorv1alpha1.RebalanceWindow{{Start: "00:00", Duration: metav1.Duration{Duration: 1}}}
	for name, tc := range map[string]struct {
		spec  *operatorv1alpha1.RebalanceSpec
		began bool
		env   func(*env)
		calls string
		want  string // of the condition Balanced; "" without
		moves int    // in the status
	}{
		"nothing is compared by default":     {},
		"nor with the mode Off":              {spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceOff}},
		"it leaves a trace before it begins": {spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceAuto}, want: "False Unavailable the shards have not been compared yet"},
		"balanced shards": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceSuggest}, began: true, calls: "rebalance 20% max 0 give up", want: "True Balanced no shard has more than 20 percent"},
		"a suggestion moves nothing": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceSuggest, Threshold: ptr.To[int32](50)}, began: true, env: func(e *env) { e.found = over },
			calls: "rebalance 50% max 0 give up", want: `False Suggested shard "a" has 9 workspaces, its share is 5. status.rebalance.moves has`, moves: 1},
		"moves begin": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceAuto, MaxConcurrent: ptr.To[int32](3), Windows: always}, began: true,
			env: func(e *env) { e.found = over; e.found.Running = 1 }, calls: "rebalance 20% max 3", want: "False Moving 1 moving, 0 moved within 24h0m0s; shard \"a\" has 9", moves: 1},
		"outside the windows none begin": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceAuto, Windows: never}, began: true, env: func(e *env) { e.found = over },
			calls: "rebalance 20% max 0", want: "False OutsideWindow", moves: 1},
		"a window that is invalid": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceAuto, Windows: []operatorv1alpha1.RebalanceWindow{{Start: "00:00", TimeZone: "Nowhere"}}}, began: true,
			calls: "rebalance 20% max 0", want: "False InvalidWindow no move begins: spec.rebalance.windows[0]: timeZone"},
		"nothing can be moved": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceAuto}, began: true,
			env:   func(e *env) { e.found = rebalance.Decision{Over: over.Over, Failed: []string{"m-x: too large"}} },
			calls: "rebalance 20% max 1", want: `False NothingMovable shard "a" has 9 workspaces, its share is 5; m-x: too large. Nothing of it`},
		"the feature is disabled": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceAuto}, began: true, env: func(e *env) { e.drainErr = moves.ErrFeatureDisabled },
			calls: "rebalance 20% max 1", want: "False FeatureDisabled the installation does not move logical clusters: start every shard with"},
		"the installation does not answer": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceAuto}, began: true, env: func(e *env) { e.err = errors.New("no connection") },
			calls: "rebalance 20% max 1", want: "False Unavailable the shards cannot be compared: no connection"},
		"moves are given up when it is turned off": {began: true, calls: "stop"},
		"or finished": {
			spec: &operatorv1alpha1.RebalanceSpec{Mode: operatorv1alpha1.RebalanceOff}, began: true, env: func(e *env) { e.running = 1 }, calls: "stop",
			want: "False Stopping rebalancing is being stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRootShard()
			root.Spec.Rebalance = tc.spec
			root.Status.Conditions = []metav1.Condition{{Type: operatorv1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "R"}}
			if tc.began {
				root.Status.Conditions = append(root.Status.Conditions, metav1.Condition{Type: operatorv1alpha1.ConditionBalanced, Status: metav1.ConditionFalse, Reason: "R"})
				root.Status.Rebalance = &operatorv1alpha1.RebalanceStatus{}
			}
			e := newEnv(t, root)
			if tc.env != nil {
				tc.env(e)
			}
			got := e.reconcileRoot("root")
			if calls := strings.Join(e.calls, " "); calls != tc.calls {
				t.Errorf("calls are %q, want %q", calls, tc.calls)
			}
			have := ""
			if condition := meta.FindStatusCondition(got.Status.Conditions, operatorv1alpha1.ConditionBalanced); condition != nil {
				have = fmt.Sprintf("%s %s %s", condition.Status, condition.Reason, condition.Message)
			}
			if !strings.HasPrefix(have, tc.want) || (have == "") != (tc.want == "") {
				t.Errorf("condition %q, want %q", have, tc.want)
			}
			suggested := 0
			if got.Status.Rebalance != nil {
				suggested = len(got.Status.Rebalance.Moves)
			}
			if suggested != tc.moves {
				t.Errorf("status %+v", got.Status.Rebalance)
			}
		})
	}
}
