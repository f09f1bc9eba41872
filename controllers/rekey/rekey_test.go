package rekey

import (
	"testing"
	"time"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestDecide(t *testing.T) {
	missing := []string{"a server"}
	for name, tc := range map[string]struct {
		state   State
		wanted  Wanted
		missing []string
		want    State
	}{
		"nothing is wanted":                 {State{Phase: Stable, Generation: 1}, Wanted{Generation: 1}, nil, State{Phase: Stable, Generation: 1}},
		"a retired key is wanted":           {State{Phase: Stable, Generation: 3}, Wanted{Generation: 2}, nil, State{Phase: Stable, Generation: 3}},
		"a new key is wanted":               {State{Phase: Stable, Generation: 1}, Wanted{Generation: 2}, nil, State{Phase: TrustBoth, Generation: 1, Next: 2}},
		"a re-keying cannot begin":          {State{Phase: Stable, Generation: 1}, Wanted{Generation: 2}, missing, State{Phase: Stable, Generation: 1}},
		"generations may be skipped":        {State{Phase: Stable, Generation: 1}, Wanted{Generation: 7}, nil, State{Phase: TrustBoth, Generation: 1, Next: 7}},
		"a server does not trust both":      {State{TrustBoth, 1, 2, noon.Add(-time.Hour)}, Wanted{Generation: 2}, missing, State{Phase: TrustBoth, Generation: 1, Next: 2}},
		"all servers trust both":            {State{Phase: TrustBoth, Generation: 1, Next: 2}, Wanted{Generation: 2}, nil, State{TrustBoth, 1, 2, noon}},
		"the hold is not over":              {State{TrustBoth, 1, 2, noon.Add(-TrustHold + 1)}, Wanted{Generation: 2}, nil, State{TrustBoth, 1, 2, noon.Add(-TrustHold + 1)}},
		"the hold is over":                  {State{TrustBoth, 1, 2, noon.Add(-TrustHold)}, Wanted{Generation: 2}, nil, State{Phase: Issue, Generation: 1, Next: 2}},
		"a third key waits":                 {State{TrustBoth, 1, 2, noon.Add(-TrustHold)}, Wanted{Generation: 3}, nil, State{Phase: Issue, Generation: 1, Next: 2}},
		"a clock was set back":              {State{TrustBoth, 1, 2, noon.Add(time.Hour)}, Wanted{Generation: 2}, nil, State{TrustBoth, 1, 2, noon}},
		"a certificate is not issued":       {State{Issue, 1, 2, noon.Add(-time.Hour)}, Wanted{2, 1}, missing, State{Phase: Issue, Generation: 1, Next: 2}},
		"retirement is not confirmed":       {State{Issue, 1, 2, noon.Add(-time.Hour)}, Wanted{Generation: 2}, nil, State{Issue, 1, 2, noon.Add(-time.Hour)}},
		"another retirement is confirmed":   {State{Issue, 2, 3, noon.Add(-time.Hour)}, Wanted{3, 1}, nil, State{Issue, 2, 3, noon.Add(-time.Hour)}},
		"the longer hold is not over":       {State{Issue, 1, 2, noon.Add(-IssueHold + 1)}, Wanted{2, 1}, nil, State{Issue, 1, 2, noon.Add(-IssueHold + 1)}},
		"retirement begins":                 {State{Issue, 1, 2, noon.Add(-IssueHold)}, Wanted{2, 1}, nil, State{Phase: Retire, Generation: 1, Next: 2}},
		"a server trusts the previous key":  {State{Phase: Retire, Generation: 1, Next: 2}, Wanted{2, 1}, missing, State{Phase: Retire, Generation: 1, Next: 2}},
		"no server trusts the previous key": {State{Phase: Retire, Generation: 1, Next: 2}, Wanted{2, 1}, nil, State{Retire, 1, 2, noon}},
		"the previous key is retired":       {State{Retire, 1, 2, noon}, Wanted{2, 1}, nil, State{Phase: Stable, Generation: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(tc.state, tc.wanted, tc.missing, noon); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestFind(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted   int32
		existing []int32
		issuing  int32
		want     State
	}{
		"a new installation":                            {2, nil, 0, State{Phase: Stable, Generation: 2}},
		"an installation with its first key":            {1, []int32{1}, 1, State{Phase: Stable, Generation: 1}},
		"a re-keying had not begun":                     {2, []int32{1}, 1, State{Phase: TrustBoth, Generation: 1, Next: 2}},
		"the first key issued, the second may have":     {2, []int32{1, 2}, 1, State{Phase: TrustBoth, Generation: 1, Next: 2}},
		"the second key issued":                         {2, []int32{1, 2}, 2, State{Phase: Issue, Generation: 1, Next: 2}},
		"the first key is deleted":                      {2, []int32{2}, 2, State{Phase: Stable, Generation: 2}},
		"only Secrets are restored":                     {2, []int32{1, 2}, 0, State{Phase: TrustBoth, Generation: 1, Next: 2}},
		"only the first Secret is restored":             {2, []int32{1}, 0, State{Phase: TrustBoth, Generation: 1, Next: 2}},
		"the certificate is of another issuer":          {3, []int32{2}, 9, State{Phase: TrustBoth, Generation: 2, Next: 3}},
		"the spec is older than the keys":               {2, []int32{2, 5}, 5, State{Phase: Issue, Generation: 2, Next: 5}},
		"the spec is older than the only key":           {2, []int32{5}, 5, State{Phase: Stable, Generation: 5}},
		"a third key waits while the second one issues": {3, []int32{2, 1}, 2, State{Phase: Issue, Generation: 1, Next: 2}},
		"a third key waits while the first one issues":  {3, []int32{1, 2}, 1, State{Phase: TrustBoth, Generation: 1, Next: 2}},
		"a third key waits if the issuer is unknown":    {3, []int32{1, 2}, 0, State{Phase: TrustBoth, Generation: 1, Next: 2}},
		"the spec says nothing of two keys":             {1, []int32{1, 2}, 2, State{Phase: Issue, Generation: 1, Next: 2}},
		"the order of Secrets does not matter":          {2, []int32{2, 1, 2}, 2, State{Phase: Issue, Generation: 1, Next: 2}},
		"of three keys each may be in use":              {4, []int32{1, 3, 4}, 4, State{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got, ok := Find(tc.wanted, tc.existing, tc.issuing); got != tc.want || ok != (tc.want != State{}) {
				t.Errorf("got %+v, %t, want %+v", got, ok, tc.want)
			}
		})
	}
}

func TestAwaitsConfirmation(t *testing.T) {
	for name, tc := range map[string]struct {
		state  State
		retire int32
		want   bool
	}{
		"something is missing":        {State{Phase: Issue, Generation: 1, Next: 2}, 0, false},
		"the hold is not over":        {State{Issue, 1, 2, noon.Add(-IssueHold + 1)}, 0, false},
		"only the user is waited for": {State{Issue, 1, 2, noon.Add(-IssueHold)}, 0, true},
		"the user has confirmed":      {State{Issue, 1, 2, noon.Add(-IssueHold)}, 1, false},
		"another phase":               {State{TrustBoth, 1, 2, noon.Add(-IssueHold)}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := AwaitsConfirmation(tc.state, Wanted{2, tc.retire}, noon); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}

func TestRecord(t *testing.T) {
	for _, state := range []State{{Phase: Stable, Generation: 3}, {Issue, 1, 2, noon}} {
		status := &operatorv1alpha1.CertificateAuthorityStatus{}
		state.ToStatus(status)
		if got := FromStatus(status); got != state {
			t.Errorf("got %+v, want %+v", got, state)
		}
	}
}
