package issuertest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"
)

// SignIn is the authorization code flow of an issuer for public clients, with PKCE. Users need no password: the issuer signs every user
// in immediately.
type SignIn struct {
	issuer *Issuer
	t      testing.TB
	// ClientID is the only client, RedirectURI the address to which its users are redirected.
	ClientID, RedirectURI string

	mu            sync.Mutex
	claims        map[string]any
	lifetime      time.Duration
	codes         map[string]url.Values // by code: the parameters of the authorization request
	refreshTokens map[string]bool
	refreshes     int
}

// EnableSignIn adds the flow for a client. Tokens have the claims and the lifetime.
func (i *Issuer) EnableSignIn(t testing.TB, clientID string, claims map[string]any, lifetime time.Duration) *SignIn {
	s := &SignIn{issuer: i, t: t, ClientID: clientID, claims: claims, lifetime: lifetime, codes: map[string]url.Values{}, refreshTokens: map[string]bool{}}
	i.signIn.Store(s)
	return s
}

// Refreshes returns how many tokens were refreshed.
func (s *SignIn) Refreshes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshes
}

// Revoke ends the sessions: the issuer refuses their refresh tokens.
func (s *SignIn) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.refreshTokens)
}

func (s *SignIn) authorize(w http.ResponseWriter, r *http.Request) {
	parameters := r.URL.Query()
	if parameters.Get("client_id") != s.ClientID || parameters.Get("redirect_uri") != s.RedirectURI || parameters.Get("response_type") != "code" ||
		parameters.Get("code_challenge_method") != "S256" || parameters.Get("state") == "" || parameters.Get("nonce") == "" {
		http.Error(w, "invalid request: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	}
	code := rand.Text()
	s.mu.Lock()
	s.codes[code] = parameters
	s.mu.Unlock()
	back := url.Values{"code": {code}, "state": {parameters.Get("state")}, "iss": {s.issuer.URL}}
	http.Redirect(w, r, s.RedirectURI+"?"+back.Encode(), http.StatusFound)
}

func (s *SignIn) token(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	refuse := func(reason string) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.WriteHeader(http.StatusBadRequest)
		s.issuer.respond(w, map[string]any{"error": "invalid_grant", "error_description": reason})
	}
	claims := maps.Clone(s.claims)
	switch r.PostFormValue("grant_type") {
	case "authorization_code":
		request, ok := s.codes[r.PostFormValue("code")]
		delete(s.codes, r.PostFormValue("code"))
		challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
		if !ok || base64.RawURLEncoding.EncodeToString(challenge[:]) != request.Get("code_challenge") || r.PostFormValue("redirect_uri") != s.RedirectURI {
			refuse("the code is wrong")
			return
		}
		claims["nonce"] = request.Get("nonce")
	case "refresh_token":
		if !s.refreshTokens[r.PostFormValue("refresh_token")] {
			refuse("the session has ended")
			return
		}
		delete(s.refreshTokens, r.PostFormValue("refresh_token"))
		s.refreshes++
	default:
		refuse("the grant type is not supported")
		return
	}
	refreshToken := rand.Text()
	s.refreshTokens[refreshToken] = true
	claims["aud"], claims["exp"] = s.ClientID, time.Now().Add(s.lifetime).Unix()
	s.issuer.respond(w, map[string]any{"id_token": s.issuer.Token(s.t, claims), "refresh_token": refreshToken, "token_type": "Bearer", "access_token": rand.Text()})
}
