package identity

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

func TestServerGroupsAreDroppedByDefault(t *testing.T) {
	for _, group := range []string{"system:kcp:shard", "system:kcp:cache", "system:kcp:logical-cluster-admin", "system:kcp:terminator:a"} {
		if kept := (GroupFilter{Drop: DefaultDropGroups()}).Apply([]string{group}); len(kept) != 0 {
			t.Errorf("%s is not dropped", group)
		}
	}
}

func TestGroupFilter(t *testing.T) {
	groups := []string{"devs", "admins", "system:masters", "system:kcp:initializer:a:b", "system:kcp:external-logical-cluster-admin", "devs", "system:authenticated"}
	for name, tc := range map[string]struct {
		filter GroupFilter
		want   string
	}{
		"the default drops groups of servers":      {GroupFilter{Drop: DefaultDropGroups()}, "admins devs system:authenticated system:kcp:external-logical-cluster-admin"},
		"an empty filter keeps all groups, sorted": {GroupFilter{}, "admins devs system:authenticated system:kcp:external-logical-cluster-admin system:kcp:initializer:a:b system:masters"},
		"PassOn keeps only its groups":             {GroupFilter{PassOn: []string{"devs"}}, "devs"},
		"Drop takes precedence over PassOn":        {GroupFilter{PassOn: []string{"devs", "system:masters"}, Drop: []string{"system:masters"}}, "devs"},
		"a star matches a prefix":                  {GroupFilter{PassOn: []string{"system:*"}, Drop: []string{"system:kcp:*"}}, "system:authenticated system:masters"},
		"a star alone matches all groups":          {GroupFilter{Drop: []string{"*"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(tc.filter.Apply(groups), " "); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseGroups(t *testing.T) {
	for name, tc := range map[string]struct{ in, want []string }{
		"a clean list":                     {[]string{"a", "b"}, []string{"a", "b"}},
		"a list quoted as a whole":         {[]string{"a,b"}, []string{"a", "b"}},
		"a list with quotes in its values": {[]string{`"a`, `b"`}, []string{"a", "b"}},
		"an empty value":                   {[]string{""}, nil},
		"an empty quoted value":            {[]string{`""`}, nil},
		"white space":                      {[]string{" a ", " "}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
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
		t.Errorf("the key is not escaped as in the contract: %v", out)
	}
}

func FuzzIsReserved(f *testing.F) {
	for _, seed := range []string{"X-Remote-User", "x_remote_group", "X-REMOTE-EXTRA-a", "Accept", "X-Remot-E", ""} {
		f.Add(seed)
	}
	names := DefaultHeaderNames()
	f.Fuzz(func(t *testing.T, name string) {
		canonical := strings.ToLower(strings.ReplaceAll(http.CanonicalHeaderKey(name), "_", "-"))
		if strings.HasPrefix(canonical, "x-remote-") && !names.IsReserved(name) {
			t.Fatalf("%q is not reserved", name)
		}
	})
}
