package portal

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Path is the path of the page.
const Path = "/ui/"

//go:embed dist
var dist embed.FS

// Config configures the page.
type Config struct {
	// Group is the API group of Templates and instances; Export is the name of the APIExport.
	Group, Export string
	// Workspace is the path of the provider's workspace, for the command that binds the export; empty if it is unknown.
	Workspace string
	// OIDC configures how users sign in, as an alternative to pasting a token.
	OIDC OIDC
	// Console offers the pages of administrators: workspaces and shards. They have the rights of the user, as all of the portal, and reach
	// nothing else.
	Console bool
	// Installation says that the web server reads the operator's objects for the console.
	Installation bool
}

// OIDC is an OpenID Connect issuer with a public client: authorization code and PKCE, no secret.
type OIDC struct {
	// IssuerURL is the issuer, as in its tokens; empty means none. Its endpoints for tokens and discovery must have its origin, and allow
	// requests from the origin of the portal (CORS).
	IssuerURL string
	// ClientID is the client whose redirect URI is the address of the page.
	ClientID string
}

// pageConfig is the content of config.json.
type pageConfig struct {
	Group        string    `json:"group"`
	Export       string    `json:"export"`
	Version      string    `json:"version"`
	Workspace    string    `json:"providerWorkspace,omitempty"`
	Console      bool      `json:"console,omitempty"`
	Installation bool      `json:"installation,omitempty"`
	OIDC         *pageOIDC `json:"oidc,omitempty"`
}

type pageOIDC struct {
	IssuerURL string `json:"issuerURL"`
	ClientID  string `json:"clientID"`
}

// templatesVersion is the version of Templates.
const templatesVersion = "v1alpha1"

// Handler serves the page at Path. It returns status 404 for other paths.
func Handler(config Config) (http.Handler, error) {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		return nil, err
	}
	index, err := fs.ReadFile(files, "index.html")
	if err != nil {
		return nil, err
	}
	page := pageConfig{Group: config.Group, Export: config.Export, Version: templatesVersion, Workspace: config.Workspace, Console: config.Console, Installation: config.Installation}
	issuer := ""
	if config.OIDC.IssuerURL != "" {
		if issuer, err = origin(config.OIDC.IssuerURL); err != nil {
			return nil, err
		}
		page.OIDC = &pageOIDC{IssuerURL: config.OIDC.IssuerURL, ClientID: config.OIDC.ClientID}
	}
	encoded, err := json.Marshal(page)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+Path+"{$}", content("index.html", "text/html; charset=utf-8", index))
	mux.Handle("GET "+Path+"config.json", content("config.json", "application/json", encoded))
	mux.Handle("GET "+Path+"assets/{name}", http.StripPrefix(Path, assets(files)))
	return secure(mux, issuer), nil
}

// origin returns the origin of the URL of an issuer.
func origin(issuer string) (string, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("the URL of an issuer is https://..., got %q", issuer)
	}
	return u.Scheme + "://" + u.Host, nil
}

// content serves a file that browsers must not cache: it names the assets, whose names change with their content.
func content(name, contentType string, body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "no-store")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
	})
}

// contentTypes are the content types of the assets. They do not depend on the MIME types of the host.
var contentTypes = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".txt": "text/plain; charset=utf-8",
	".svg": "image/svg+xml",
}

// assets serves the assets. Browsers cache those whose names contain a hash of their content.
func assets(files fs.FS) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := fs.ReadFile(files, r.URL.Path)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		extension := r.URL.Path[strings.LastIndexByte(r.URL.Path, '.')+1:]
		w.Header().Set("Content-Type", contentTypes["."+extension])
		if strings.Contains(r.URL.Path, "-") {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		} else {
			w.Header().Set("Cache-Control", "no-store")
		}
		http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(body))
	})
}

// secure adds headers that restrict the browser: it runs only the script of the page, and sends requests only to the origin of the page, the
// issuer, and the servers of icons.
func secure(next http.Handler, issuer string) http.Handler {
	policy := strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: https:",
		strings.TrimSpace("connect-src 'self' " + issuer), "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		"require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; ")
	headers := map[string]string{
		"Content-Security-Policy":      policy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}
