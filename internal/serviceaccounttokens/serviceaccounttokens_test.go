package serviceaccounttokens

import (
	"encoding/base64"
	"testing"
)

func TestClusterClaim(t *testing.T) {
	token := func(payload string) string {
		return "h." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".s"
	}
	for name, tc := range map[string]struct{ token, want string }{
		"a bound token":               {token(`{"kubernetes.io":{"clusterName":"team1"}}`), "team1"},
		"a legacy token":              {token(`{"kubernetes.io/serviceaccount/clusterName":"team1"}`), "team1"},
		"no claim":                    {token(`{"kubernetes.io":{}}`), ""},
		"the wildcard":                {token(`{"kubernetes.io":{"clusterName":"*"}}`), ""},
		"a path":                      {token(`{"kubernetes.io":{"clusterName":"root:a"}}`), ""},
		"dot segments":                {token(`{"kubernetes.io":{"clusterName":"../x"}}`), ""},
		"a claim of the wrong type":   {token(`{"kubernetes.io":{"clusterName":7}}`), ""},
		"a payload that is no JSON":   {token(`x`), ""},
		"a payload that is no base64": {"h.*.s", ""},
		"an opaque token":             {"opaque", ""},
		"too many parts":              {"a.b.c.d", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := ClusterClaim(tc.token)
			if got.String() != tc.want || ok != (tc.want != "") {
				t.Errorf("got %q, %v", got, ok)
			}
		})
	}
}
