package fence

import (
	"strconv"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/internal/movestate"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// EpochOf returns the epoch of the content that the shard has, as the annotations of a LogicalCluster express it. The hand-over
// raises the stored epoch, but what remains at the origin is from before it.
func EpochOf(annotations map[string]string) uint64 {
	epoch, err := strconv.ParseUint(annotations[corev1alpha1.EpochAnnotationKey], 10, 64)
	if err != nil {
		return 0
	}
	if _, handedOver := annotations[corev1alpha1.MovedToAnnotationKey]; handedOver && epoch > 0 {
		epoch--
	}
	return min(epoch, storage.MaxEpoch)
}

// Request is the part of a request that a decision needs.
type Request struct {
	// Verb, Group, Resource and Subresource are those of the stock RequestInfo; the resource is empty for requests that are
	// not for resources.
	Verb, Group, Resource, Subresource string
	// ResourceVersion and Continue are the parameters of a list or watch.
	ResourceVersion, Continue string
	// LongRunning is whether the request lasts until the client or the server ends it.
	LongRunning bool
}

// Answer is what a request gets.
type Answer int

const (
	// Serve means that the fence does not affect the request.
	Serve Answer = iota
	// Unavailable is 503: the client repeats the request, here or at the destination.
	Unavailable
	// Expired is 410: the client lists again, because resource versions of the origin mean nothing at the destination.
	Expired
)

// Decide returns the answer to a request to a logical cluster.
func Decide(state movestate.State, request Request) Answer {
	switch state {
	case movestate.Open:
		return Serve
	case movestate.WritesPaused:
		if request.isRead() {
			return Serve
		}
	case movestate.MovedAway:
		if request.hasVersion() {
			return Expired
		}
	}
	return Unavailable
}

// hasVersion reports whether the request reads at or from a resource version. The token of a continued list has one.
func (r Request) hasVersion() bool {
	if r.Resource == "" || (r.Verb != "list" && r.Verb != "watch") {
		return false
	}
	return (r.ResourceVersion != "" && r.ResourceVersion != "0") || r.Continue != ""
}

// isRead reports whether the request writes nothing, neither here nor in what it connects to. A dry run is a write, because
// its response must be that of the write.
func (r Request) isRead() bool {
	switch r.Verb {
	case "watch":
		return true
	case "get", "list", "head", "options":
		return !r.LongRunning && !connects[r.Subresource]
	case "create":
		return answersOnly[resource{r.Group, r.Resource, r.Subresource}]
	}
	return false
}

// connects are the subresources with which a client connects to a workload, whatever the verb.
var connects = map[string]bool{"exec": true, "attach": true, "portforward": true, "proxy": true}

type resource struct{ group, resource, subresource string }

// answersOnly are the resources whose creation stores nothing. A token of a service account is signed, not stored.
var answersOnly = map[resource]bool{
	{"authorization.k8s.io", "subjectaccessreviews", ""}:      true,
	{"authorization.k8s.io", "localsubjectaccessreviews", ""}: true,
	{"authorization.k8s.io", "selfsubjectaccessreviews", ""}:  true,
	{"authorization.k8s.io", "selfsubjectrulesreviews", ""}:   true,
	{"authentication.k8s.io", "tokenreviews", ""}:             true,
	{"authentication.k8s.io", "selfsubjectreviews", ""}:       true,
	{"", "serviceaccounts", "token"}:                          true,
}
