package identity

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// HeaderNames are the names of the headers in which a backend reads the user.
type HeaderNames struct {
	User        string
	Group       string
	ExtraPrefix string
}

// DefaultHeaderNames are those of Kubernetes.
func DefaultHeaderNames() HeaderNames {
	return HeaderNames{User: "X-Remote-User", Group: "X-Remote-Group", ExtraPrefix: "X-Remote-Extra-"}
}

// reservedPrefix starts every header from which Kubernetes servers read a user by default, including the UID.
const reservedPrefix = "x-remote-"

// IsReserved reports whether a backend may read a user from the header. Case does not matter, nor does '_' instead of
// '-', which some servers treat as equal.
func (n HeaderNames) IsReserved(name string) bool {
	folded := fold(name)
	return strings.HasPrefix(folded, reservedPrefix) ||
		folded == fold(n.User) || folded == fold(n.Group) || strings.HasPrefix(folded, fold(n.ExtraPrefix))
}

func fold(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// Set adds the identity headers of a user to headers that have none. The UID is not sent.
func (n HeaderNames) Set(out http.Header, u user.Info) {
	out.Set(n.User, u.GetName())
	for _, group := range u.GetGroups() {
		out.Add(n.Group, group)
	}
	extra := u.GetExtra()
	for _, key := range slices.Sorted(maps.Keys(extra)) {
		for _, value := range extra[key] {
			out.Add(n.ExtraPrefix+escapeKey(key), value)
		}
	}
}

// escapeKey percent-encodes '%' and all bytes of an extra key that are invalid in a header name. Header names are not
// case sensitive: the backend reads keys in lower case, as those of Kubernetes are.
func escapeKey(key string) string {
	const hex = "0123456789abcdef"
	var out strings.Builder
	for i := range len(key) {
		if c := key[i]; isTokenByte(c) && c != '%' {
			out.WriteByte(c)
		} else {
			out.WriteByte('%')
			out.WriteByte(hex[c>>4])
			out.WriteByte(hex[c&15])
		}
	}
	return out.String()
}

// isTokenByte reports whether RFC 9110 allows the byte in a header name.
func isTokenByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// BearerToken returns the bearer token in the header Authorization of a request, or "".
func BearerToken(req *http.Request) string {
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
