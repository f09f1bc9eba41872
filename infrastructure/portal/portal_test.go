package portal_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/infrastructure/portal"
)

func newHandler(t *testing.T, config portal.Config) http.Handler {
	t.Helper()
	handler, err := portal.Handler(config)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

func get(handler http.Handler, path string) *http.Response {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder.Result()
}

func body(t *testing.T, response *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// digest computes the same digest as web/build.mjs.
func digest(t *testing.T, directory string, files []string) string {
	t.Helper()
	slices.Sort(files)
	all := sha256.New()
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(directory, file))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(all, "%x  %s\n", sha256.Sum256(content), file)
	}
	return hex.EncodeToString(all.Sum(nil))
}

func filesBelow(t *testing.T, directory, root string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join(directory, root), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(directory, path)
		files = append(files, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestBuildBelongsToSources needs no npm: the build has recorded digests of its sources and of its output.
func TestBuildBelongsToSources(t *testing.T) {
	text, err := os.ReadFile("dist/build.json")
	if err != nil {
		t.Fatal(err)
	}
	var build struct{ Sources, Output string }
	if err := json.Unmarshal(text, &build); err != nil {
		t.Fatal(err)
	}
	sources := append(filesBelow(t, "web", "src"), "build.mjs", "index.html", "package.json", "package-lock.json", "tsconfig.json")
	if got := digest(t, "web", sources); got != build.Sources {
		t.Errorf("dist was built from other sources than those in web: run 'make portal' and commit what it changes")
	}
	output := slices.DeleteFunc(filesBelow(t, "dist", "."), func(name string) bool { return name == "build.json" })
	if got := digest(t, "dist", output); got != build.Output {
		t.Errorf("dist was changed by hand: run 'make portal' and commit what it changes")
	}
}

// scriptBudget is how many bytes of script the page may have over the wire. The server does not compress.
const scriptBudget = 300 << 10

func TestFiles(t *testing.T) {
	handler := newHandler(t, portal.Config{Group: "a.example.org", Export: "b", Workspace: "root:provider"})
	index := get(handler, "/ui/")
	if index.StatusCode != http.StatusOK || index.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the index: %s, Cache-Control %q", index.Status, index.Header.Get("Cache-Control"))
	}
	text := body(t, index)
	if regexp.MustCompile(`(?i)<style|\son[a-z]+=|\sstyle=|<script[^>]*>[^<]|https?://`).MatchString(text) {
		t.Errorf("the index has inline scripts, inline styles or addresses of others: %s", text)
	}
	names := regexp.MustCompile(`assets/[^"]+`).FindAllString(text, -1)
	if len(names) != 3 {
		t.Fatalf("assets of the index: %v", names)
	}
	script := 0
	for _, name := range names {
		response := get(handler, "/ui/"+name)
		if response.StatusCode != http.StatusOK || response.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
			t.Errorf("%s: %s, Cache-Control %q", name, response.Status, response.Header.Get("Cache-Control"))
		}
		if !regexp.MustCompile(`-[A-Z0-9]{8}\.(js|css|svg)$`).MatchString(name) {
			t.Errorf("the name of %s has no hash of its content", name)
		}
		if strings.HasSuffix(name, ".js") {
			script += len(body(t, response))
		}
	}
	if script == 0 || script > scriptBudget {
		t.Errorf("the page has %d bytes of script, at most %d are allowed: leave out or replace what is large", script, scriptBudget)
	}
	t.Logf("%d bytes of script", script)
	licences := body(t, get(handler, "/ui/assets/licences.txt"))
	for _, name := range []string{"preact ", "js-yaml ", "lucide "} {
		if !strings.Contains(licences, name) {
			t.Errorf("the licences lack %s", name)
		}
	}
	for _, path := range []string{"/", "/ui/build.json", "/ui/assets/", "/ui/assets/missing.js", "/ui/assets/..%2fbuild.json", "/ui/index.html"} {
		if response := get(handler, path); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s, expected 404", path, response.Status)
		}
	}
}

func TestSecurityHeaders(t *testing.T) {
	handler := newHandler(t, portal.Config{OIDC: portal.OIDC{IssuerURL: "https://issuer.example.org/realm", ClientID: "portal"}})
	for _, path := range []string{"/ui/", "/ui/config.json", "/ui/assets/licences.txt", "/ui/missing"} {
		header := get(handler, path).Header
		policy := header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self' https://issuer.example.org;", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("the policy of %s lacks %s: %s", path, part, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("headers of %s: %v", path, header)
		}
	}
	if _, err := portal.Handler(portal.Config{OIDC: portal.OIDC{IssuerURL: "http://issuer.example.org"}}); err == nil {
		t.Error("an issuer without TLS is accepted")
	}
}

func TestConfig(t *testing.T) {
	config := portal.Config{Group: "a.example.org", Export: "b", Workspace: "root:provider"}
	const plain = `{"group":"a.example.org","export":"b","version":"v1alpha1","providerWorkspace":"root:provider"}`
	if got := body(t, get(newHandler(t, config), "/ui/config.json")); got != plain {
		t.Errorf("got %s, want %s", got, plain)
	}
	config.Console = true
	if got, want := body(t, get(newHandler(t, config), "/ui/config.json")), strings.TrimSuffix(plain, "}")+`,"console":true}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	config.OIDC = portal.OIDC{IssuerURL: "https://issuer.example.org", ClientID: "portal"}
	if got := body(t, get(newHandler(t, config), "/ui/config.json")); !strings.Contains(got, `"oidc":{"issuerURL":"https://issuer.example.org","clientID":"portal"}`) {
		t.Errorf("got %s", got)
	}
}
