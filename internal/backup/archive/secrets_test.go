package archive

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestCopySecrets copies bundles that somebody else may have made.
func TestCopySecrets(t *testing.T) {
	secret := func(name string) string {
		return `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"},"data":{"key":"dmFsdWU="}}`
	}
	file := func(name, content string) func(*tar.Writer) error {
		return func(archive *tar.Writer) error {
			if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
				return err
			}
			_, err := archive.Write([]byte(content))
			return err
		}
	}
	a, b := file("secrets/a.json", secret("a")), file("secrets/b.json", secret("b"))
	for name, tc := range map[string]struct {
		entries []func(*tar.Writer) error
		want    string
	}{
		"the Secrets of the manifest are copied": {[]func(*tar.Writer) error{a, b}, ""},
		"one that is missing is named":           {[]func(*tar.Writer) error{a}, "lacks b"},
		"one more is refused":                    {[]func(*tar.Writer) error{a, b, file("secrets/c.json", secret("c"))}, `contains "secrets/c.json", Secret "c"`},
		"one twice is refused":                   {[]func(*tar.Writer) error{a, b, a}, `contains "secrets/a.json"`},
		"another kind is refused": {[]func(*tar.Writer) error{a, file("secrets/b.json", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"b"}}`)},
			`is of kind "ClusterRoleBinding"`},
		"another field is refused":       {[]func(*tar.Writer) error{a, file("secrets/b.json", `{"apiVersion":"v1","kind":"Secret","items":[],"metadata":{"name":"b"}}`)}, "no manifest of a Secret"},
		"another namespace is refused":   {[]func(*tar.Writer) error{a, file("secrets/b.json", `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b","namespace":"kube-system"}}`)}, "no manifest of a Secret"},
		"a second document is refused":   {[]func(*tar.Writer) error{a, file("secrets/b.json", secret("b")+secret("b"))}, "continues after a Secret"},
		"another file name is refused":   {[]func(*tar.Writer) error{a, file("b.json", secret("b"))}, `contains "b.json"`},
		"what is no manifest is refused": {[]func(*tar.Writer) error{a, file("secrets/b.json", "kind: Secret")}, "no manifest of a Secret"},
		"a link is refused": {[]func(*tar.Writer) error{a, func(archive *tar.Writer) error {
			return archive.WriteHeader(&tar.Header{Name: "secrets/b.json", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"})
		}}, "no manifest of a Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			var bundle, copied bytes.Buffer
			archive := tar.NewWriter(&bundle)
			for _, add := range tc.entries {
				if err := add(archive); err != nil {
					t.Fatal(err)
				}
			}
			if err := archive.Close(); err != nil {
				t.Fatal(err)
			}
			err := copySecrets(&copied, &bundle, []string{"a", "b"})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if err != nil {
				return
			}
			content, err := io.ReadAll(&copied)
			if err != nil || !bytes.Contains(content, []byte("secrets/b.json")) || !bytes.Contains(content, []byte(`"dmFsdWU="`)) {
				t.Errorf("%v: the copy is %q", err, content)
			}
		})
	}
}
