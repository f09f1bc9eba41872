package identity

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

func TestGroupsOfServersAreNobodyElses(t *testing.T) {
	for _, group := range []string{"system:kcp:shard", "system:kcp:cache", "system:kcp:logical-cluster-admin", "system:kcp:terminator:a"} {
		if passed := (GroupFilter{Drop: DefaultDropGroups()}).Apply([]string{group}); len(passed) != 0 {
			t.Errorf("%s passes", group)
		}
	}
}

func TestGroupFilter(t *testing.T) {
	groups := []string{"devs", "admins", "system:masters", "system:kcp:initializer:a:b", "system:kcp:external-logical-cluster-admin", "devs", "system:authenticated"}
	for sentence, tc := range map[string]struct {
		filter GroupFilter
		want   string
	}{
		"the default drops what only shards may say": {GroupFilter{Drop: DefaultDropGroups()}, "admins devs system:authenticated system:kcp:external-logical-cluster-admin"},
		"nothing configured passes all, sorted":      {GroupFilter{}, "admins devs system:authenticated system:kcp:external-logical-cluster-admin system:kcp:initializer:a:b system:masters"},
		"a list to pass on keeps only that":          {GroupFilter{PassOn: []string{"devs"}}, "devs"},
		"dropping wins over passing on":              {GroupFilter{PassOn: []string{"devs", "system:masters"}, Drop: []string{"system:masters"}}, "devs"},
		"a star matches a prefix":                    {GroupFilter{PassOn: []string{"system:*"}, Drop: []string{"system:kcp:*"}}, "system:authenticated system:masters"},
		"a star alone matches all":                   {GroupFilter{Drop: []string{"*"}}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := strings.Join(tc.filter.Apply(groups), " "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseGroups(t *testing.T) {
	for sentence, tc := range map[string]struct{ in, want []string }{
		"a clean list":                        {[]string{"a", "b"}, []string{"a", "b"}},
		"a list quoted as a whole":            {[]string{"a,b"}, []string{"a", "b"}},
		"a list whose quotes came along":      {[]string{`"a`, `b"`}, []string{"a", "b"}},
		"an empty value, which drops nothing": {[]string{""}, nil},
		"quotes around nothing":               {[]string{`""`}, nil},
		"blanks":                              {[]string{" a ", " "}, []string{"a"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := ParseGroups(tc.in); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	out := http.Header{}
	DefaultHeaderNames().Set(out, &user.DefaultInfo{Name: "alice", UID: "secret", Groups: []string{"a", "b"}, Extra: map[string][]string{
		"authentication.kcp.io/scopes": {"cluster:a", "cluster:b"}, "with space": {"1"}, "per%cent": {"2"}, "ünï": {"3"}}})
	if out.Get("X-Remote-User") != "alice" || len(out["X-Remote-Group"]) != 2 || out.Get("X-Remote-Uid") != "" {
		t.Errorf("%v", out)
	}
	// Read back as a Kubernetes server does.
	extra := map[string][]string{}
	for name, values := range out {
		if key, ok := strings.CutPrefix(strings.ToLower(name), "x-remote-extra-"); ok {
			key, err := url.PathUnescape(key)
			if err != nil {
				t.Fatal(err)
			}
			extra[key] = values
		}
	}
	if len(extra) != 4 || len(extra["authentication.kcp.io/scopes"]) != 2 || extra["with space"][0] != "1" || extra["per%cent"][0] != "2" || extra["ünï"][0] != "3" {
		t.Errorf("read back: %v", extra)
	}
	if _, ok := out["X-Remote-Extra-Authentication.kcp.io%2fscopes"]; !ok {
		t.Errorf("the key is not escaped as the contract has it: %v", out)
	}
}

func FuzzWithoutIdentity(f *testing.F) {
	for _, seed := range []string{"X-Remote-User", "x_remote_group", "X-REMOTE-EXTRA-a", "Accept", "X-Remot-E", ""} {
		f.Add(seed)
	}
	names := DefaultHeaderNames()
	f.Fuzz(func(t *testing.T, name string) {
		out := names.WithoutIdentity(http.Header{name: {"v"}})
		for kept := range out {
			canonical := strings.ToLower(strings.ReplaceAll(http.CanonicalHeaderKey(kept), "_", "-"))
			if strings.HasPrefix(canonical, "x-remote-") {
				t.Fatalf("%q was kept", kept)
			}
		}
	})
}

func TestClusterClaim(t *testing.T) {
	token := func(payload string) string {
		return "h." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".s"
	}
	for sentence, tc := range map[string]struct{ token, want string }{
		"a bound token":             {token(`{"kubernetes.io":{"clusterName":"team1"}}`), "team1"},
		"a token out of a secret":   {token(`{"kubernetes.io/serviceaccount/clusterName":"team1"}`), "team1"},
		"no claim":                  {token(`{"kubernetes.io":{}}`), ""},
		"the wildcard":              {token(`{"kubernetes.io":{"clusterName":"*"}}`), ""},
		"a path":                    {token(`{"kubernetes.io":{"clusterName":"root:a"}}`), ""},
		"steps upwards":             {token(`{"kubernetes.io":{"clusterName":"../x"}}`), ""},
		"a claim of the wrong type": {token(`{"kubernetes.io":{"clusterName":7}}`), ""},
		"no JSON":                   {token(`x`), ""},
		"no base64":                 {"h.*.s", ""},
		"an opaque token":           {"opaque", ""},
		"too many parts":            {"a.b.c.d", ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, ok := ClusterClaim(tc.token)
			if got.String() != tc.want || ok != (tc.want != "") {
				t.Errorf("got %q, %v", got, ok)
			}
		})
	}
}
