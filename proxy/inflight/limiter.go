// Package inflight limits how many requests of one user a proxy forwards at once, so that no user occupies all of its
// memory and connections. It neither authenticates users nor queues requests.
package inflight

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/atoll-dev/atoll/internal/serviceaccounttokens"
	"github.com/atoll-dev/atoll/proxy/identity"
)

// Limits are those of one user; 0 is unlimited.
type Limits struct {
	Requests int
	// Watches are the requests that are open for any time.
	Watches int
}

// Message is that of status 429 for a request beyond the limits.
const Message = "too many concurrent requests of this user, please try again later"

// DefaultLimits are the limits without flags.
func DefaultLimits() Limits { return Limits{Requests: 400, Watches: 2000} }

const (
	requestsFlag = "max-requests-inflight-per-user"
	watchesFlag  = "max-watches-per-user"
)

// AddFlags binds the limits to the flag set.
func (l *Limits) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&l.Requests, requestsFlag, l.Requests,
		"Maximum number of concurrent requests of a user, without watches. Further ones get status 429. The service accounts of a workspace count as one user. 0 is unlimited.")
	fs.IntVar(&l.Watches, watchesFlag, l.Watches,
		"Maximum number of concurrent watches and upgraded connections of a user. Further ones get status 429. 0 is unlimited.")
}

// Validate returns all errors.
func (l *Limits) Validate() (errs []error) {
	for flag, value := range map[string]int{requestsFlag: l.Requests, watchesFlag: l.Watches} {
		if value < 0 {
			errs = append(errs, fmt.Errorf("--%s: got %d, expected a positive number, or 0 for no limit", flag, value))
		}
	}
	return errs
}

// UserOf returns the name under which a request counts. The service accounts of a logical cluster, and the users of its
// own issuers, count together. A request without a user, which the shard authenticates, counts for its token: other
// tokens cannot exhaust the limit of this one.
func UserOf(req *http.Request, u user.Info) string {
	if u == nil {
		return fmt.Sprintf("token %x", sha256.Sum256([]byte(identity.BearerToken(req))))
	}
	if cluster := u.GetExtra()[serviceaccounttokens.ClusterNameExtraKey]; len(cluster) == 1 {
		return "cluster " + cluster[0]
	}
	return "user " + u.GetName()
}

// Limiter counts the requests of users. A user without requests is not in the map.
type Limiter struct {
	limits Limits

	mu    sync.Mutex
	users map[string]Limits
}

// NewLimiter returns a limiter without requests.
func NewLimiter(limits Limits) *Limiter {
	return &Limiter{limits: limits, users: map[string]Limits{}}
}

// Acquire counts a request until release is called. ok is false if the user has too many of its kind.
func (l *Limiter) Acquire(user string, isWatch bool) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.users[user]
	count, limit := used.kind(isWatch), *l.limits.kind(isWatch)
	if limit > 0 && *count >= limit {
		return nil, false
	}
	*count++
	l.users[user] = used
	return func() { l.release(user, isWatch) }, true
}

func (l *Limiter) release(user string, isWatch bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.users[user]
	*used.kind(isWatch)--
	if used == (Limits{}) {
		delete(l.users, user)
		return
	}
	l.users[user] = used
}

func (l *Limits) kind(isWatch bool) *int {
	if isWatch {
		return &l.Watches
	}
	return &l.Requests
}

// Users returns the number of users with requests.
func (l *Limiter) Users() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.users)
}
