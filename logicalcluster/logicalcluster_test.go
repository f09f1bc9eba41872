package logicalcluster

import (
	"context"
	"strings"
	"testing"
)

func TestParseName(t *testing.T) {
	for name, tc := range map[string]struct {
		in string
		ok bool
	}{
		"accepts root":                                 {"root", true},
		"accepts a generated name":                     {"2cynbfy2m0wtjqcs", true},
		"accepts a dash inside":                        {"a-b", true},
		"accepts 63 characters":                        {strings.Repeat("a", 63), true},
		"rejects 64 characters":                        {strings.Repeat("a", 64), false},
		"accepts a system name":                        {"system:admin", true},
		"rejects a path":                               {"root:org", false},
		"rejects the wildcard":                         {"*", false},
		"rejects an empty name":                        {"", false},
		"rejects upper case":                           {"Root", false},
		"rejects a leading dash":                       {"-a", false},
		"rejects a slash":                              {"a/b", false},
		"rejects dots, which could leave a key prefix": {"..", false},
		"rejects an incomplete system name":            {"system:", false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseName(tc.in)
			if (err == nil) != tc.ok {
				t.Fatalf("ParseName(%q) error = %v, want ok = %v", tc.in, err, tc.ok)
			}
			if tc.ok && got.String() != tc.in {
				t.Fatalf("got %q", got)
			}
		})
	}
}

func TestPath(t *testing.T) {
	p := MustParsePath("root:org:team")
	if parent, ok := p.Parent(); !ok || parent.String() != "root:org" {
		t.Errorf("Parent() = %q, %v", parent, ok)
	}
	if p.Base() != "team" || len(p.Segments()) != 3 {
		t.Errorf("Base() = %q, Segments() = %v", p.Base(), p.Segments())
	}
	if _, ok := p.Name(); ok {
		t.Error("a path of three segments is no name")
	}
	system := MustParsePath("system:admin")
	if name, ok := system.Name(); !ok || name != Admin {
		t.Errorf("Name() = %q, %v", name, ok)
	}
	if _, ok := system.Parent(); ok {
		t.Error("a system name has no parent")
	}
	if !p.HasPrefix(MustParsePath("root:org")) || p.HasPrefix(MustParsePath("root:or")) {
		t.Error("HasPrefix must respect segments")
	}
}

func TestFromURLPath(t *testing.T) {
	for name, tc := range map[string]struct {
		in, path, rest string
		fails          bool
	}{
		"no cluster":                   {in: "/api/v1", rest: "/api/v1"},
		"a name":                       {in: "/clusters/root/api/v1", path: "root", rest: "/api/v1"},
		"a path":                       {in: "/clusters/root:a/api", path: "root:a", rest: "/api"},
		"the wildcard":                 {in: "/clusters/*/api", path: "*", rest: "/api"},
		"a cluster with an empty rest": {in: "/clusters/root/", path: "root", rest: "/"},
		"a cluster without a slash":    {in: "/clusters/root", fails: true},
		"another prefix":               {in: "/clustersx/root", rest: "/clustersx/root"},
		"no cluster, with a slash":     {in: "/clusters/", fails: true},
		"no cluster, no slash":         {in: "/clusters", fails: true},
		"empty segment":                {in: "/clusters//api", fails: true},
		"upper case":                   {in: "/clusters/Root/api", fails: true},
		"dots":                         {in: "/clusters/../api", fails: true},
		"wildcard in a path":           {in: "/clusters/*:a/api", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FromURLPath(tc.in)
			if tc.fails {
				if err == nil {
					t.Fatalf("want an error, got %+v", got)
				}
				return
			}
			if err != nil || got.Path.String() != tc.path || got.Rest != tc.rest {
				t.Fatalf("got %+v, %v", got, err)
			}
		})
	}
}

func TestHashes(t *testing.T) {
	if got := strings.TrimLeft(Base36Sha224([]byte("hello")), "0"); got != "2yfg0ibsewngbzapgs5fesiord507vsncfiw4jd5c2oj" {
		t.Errorf("base36sha224(hello) = %q", got)
	}
	if a, b := RandomName(), RandomName(); a == b || len(a.String()) != 16 {
		t.Errorf("RandomName() = %q, %q", a, b)
	}
	if _, err := ParseName(HomeName("alice").String()); err != nil {
		t.Error(err)
	}
}

func TestHomePath(t *testing.T) {
	for name, want := range map[string]string{"alice": "user:alice", "a-1": "user:a-1", "bob:x": "", "Bob": "", "ada@example.com": "", "": "", "system:admin": ""} {
		path, ok := HomePath(name)
		if path.String() != want || ok != (want != "") {
			t.Errorf("HomePath(%q) = %q, %v", name, path, ok)
		}
	}
}

func TestContext(t *testing.T) {
	if _, ok := From(context.Background()); ok {
		t.Error("an empty context has no cluster")
	}
	if _, ok := From(With(context.Background(), Name{})); ok {
		t.Error("the zero name is no cluster")
	}
	if got, ok := From(With(context.Background(), Root)); !ok || got != Root {
		t.Errorf("From() = %q, %v", got, ok)
	}
}

func FuzzFromURLPath(f *testing.F) {
	for _, seed := range []string{"/clusters/root/api", "/clusters/*/x", "/clusters/root:a:b/", "/clusters/", "/x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		got, err := FromURLPath(in)
		if err != nil {
			return
		}
		if !strings.HasPrefix(got.Rest, "/") && got.Rest != in {
			t.Fatalf("rest %q of %q does not start at the root", got.Rest, in)
		}
		if strings.ContainsAny(got.Path.String(), "/.%") {
			t.Fatalf("path %q of %q contains characters that are invalid in a key", got.Path, in)
		}
	})
}
