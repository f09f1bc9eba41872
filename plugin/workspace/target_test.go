package workspace

import (
	"testing"

	"github.com/atoll-dev/atoll/logicalcluster"
)

func TestParseTarget(t *testing.T) {
	const home = "/home/alice"
	for name, tc := range map[string]struct {
		arg   string
		short bool
		want  target
	}{
		"a tilde is the home workspace":                                          {arg: "~", want: target{move: moveHome}},
		"a tilde with a path is below the home workspace":                        {arg: "~:a:b", want: target{move: moveHome, relative: "a:b"}},
		"an expanded home directory is the home workspace":                       {arg: home, want: target{move: moveHome}},
		"an expanded home path is below the home workspace":                      {arg: home + "/a/b", want: target{move: moveHome, relative: "a:b"}},
		"a path with the prefix of the home directory is not the home workspace": {arg: home + "x", want: target{move: movePath, relative: "home:alicex", absolute: true}},
		"a dot is the current workspace":                                         {arg: ".", want: target{move: moveNone}},
		"a dash is the previous workspace":                                       {arg: "-", want: target{move: moveBack}},
		"a colon is the root of the tree":                                        {arg: ":", want: target{move: moveTreeRoot}},
		"a slash is the root of the tree":                                        {arg: "/", want: target{move: moveTreeRoot}},
		"the admin workspace":                                                    {arg: ":admin", want: target{move: moveAdmin}},
		"a workspace called admin is another one":                                {arg: ":root:admin", want: target{move: movePath, relative: "root:admin", absolute: true}},
		"a relative admin is a child":                                            {arg: "admin", want: target{move: movePath, relative: "admin"}},
		"a leading colon is absolute":                                            {arg: ":a:b", want: target{move: movePath, relative: "a:b", absolute: true}},
		"slashes separate names":                                                 {arg: "a/b", want: target{move: movePath, relative: "a:b"}},
		"a name is relative":                                                     {arg: "a", want: target{move: movePath, relative: "a"}},
		"a bare root is absolute, with a note":                                   {arg: "root", want: target{move: movePath, relative: "root", absolute: true, note: rootNote}},
		"root: is absolute, with a note":                                         {arg: "root:a", want: target{move: movePath, relative: "root:a", absolute: true, note: rootNote}},
		"a bare root is absolute for scripts too":                                {arg: "root", short: true, want: target{move: movePath, relative: "root", absolute: true, note: rootNote}},
		"root: is relative for scripts":                                          {arg: "root:a", short: true, want: target{move: movePath, relative: "root:a"}},
		"a name with the prefix root is relative":                                {arg: "rootish:a", want: target{move: movePath, relative: "rootish:a"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parseTarget(tc.arg, home, tc.short); got != tc.want {
				t.Fatalf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestTargetResolve(t *testing.T) {
	for name, tc := range map[string]struct {
		from, arg, want, err string
	}{
		"relative names are appended":             {from: "root:org", arg: "a:b", want: "root:org:a:b"},
		"absolute names replace the current path": {from: "root:org", arg: ":root:x", want: "root:x"},
		"dots move up":                            {from: "root:org:a", arg: "..:..", want: "root"},
		"dots and names can be mixed":             {from: "root:org:a", arg: "../b/./c", want: "root:org:b:c"},
		"system clusters are absolute":            {from: "root", arg: ":system:admin", want: "system:admin"},
		"homes are absolute":                      {from: "root", arg: ":user:bob:x", want: "user:bob:x"},
		"home itself needs no step":               {from: "user:alice", arg: "~", want: "user:alice"},
		"names below home are appended":           {from: "user:alice", arg: "~:a", want: "user:alice:a"},
		"nothing is above root":                   {from: "root", arg: "..", err: "cannot go up from root"},
		"nothing is above a system cluster":       {from: "system:admin", arg: "..", err: "cannot go up from root"},
		"nothing is above a home":                 {from: "user:alice", arg: "..", err: "cannot go up from root"},
		"dots cannot leave the tree":              {from: "root:a", arg: "..:..:..", err: "cannot go up from root"},
		"dots cannot leave an absolute path":      {from: "root:a", arg: ":root:..:..", err: "cannot go up from root"},
		"an empty argument is invalid":            {from: "root", arg: "", err: "invalid workspace path: "},
		"empty names are invalid":                 {from: "root", arg: "a::b", err: "invalid workspace path: a::b"},
		"a trailing colon is invalid":             {from: "root", arg: "a:", err: "invalid workspace path: a:"},
		"upper case is invalid":                   {from: "root", arg: "A", err: "invalid workspace path: A"},
		"the wildcard is invalid":                 {from: "root", arg: ":*", err: "invalid workspace path: :*"},
		"the argument is quoted as it was":        {from: "root", arg: "a/b c", err: "invalid workspace path: a/b c"},
		"a broken name below home is invalid":     {from: "user:alice", arg: "~/A", err: "invalid workspace path: ~/A"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseTarget(tc.arg, "/home/alice", false).resolve(logicalcluster.MustParsePath(tc.from), tc.arg)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("got %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || got.String() != tc.want {
				t.Fatalf("got %s, %v, want %s", got, err, tc.want)
			}
		})
	}
}
