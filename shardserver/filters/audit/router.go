package audit

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	stockaudit "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
)

// endTimeout bounds how long the end of the process waits for backends that may fail. Those of sinks send what is in their buffers, and a receiver
// that does not answer would take longer than the process has.
const endTimeout = 10 * time.Second

// Route sends events to a backend.
type Route struct {
	Policy  stockaudit.PolicyRuleEvaluator
	Backend stockaudit.Backend
	// Selects reports whether the route gets an event that its policy logs. It must not change the event. Nil is all events.
	Selects func(*auditinternal.Event) bool
	// MayFail means that requests do not fail if the backend fails, and that the process ends although the backend has not.
	MayFail bool
}

// Router is an audit backend, with its policy, that sends each event to those routes whose policies log it, at the level of each. Stock has one
// policy for all backends.
type Router struct {
	routes     []Route
	endTimeout time.Duration
}

// NewRouter returns a Router.
func NewRouter(routes []Route) *Router { return &Router{routes, endTimeout} }

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator: the highest level, and the stages, that any route wants. The logical cluster is not
// among the attributes, so that the level does not depend on it.
func (r *Router) EvaluatePolicyRule(attributes authorizer.Attributes) stockaudit.RequestAuditConfig {
	result := stockaudit.RequestAuditConfig{Level: auditinternal.LevelNone}
	for _, route := range r.routes {
		config := route.Policy.EvaluatePolicyRule(attributes)
		if config.Level == auditinternal.LevelNone {
			continue
		}
		if result.Level == auditinternal.LevelNone {
			result.OmitStages = config.OmitStages
		} else {
			result.OmitStages = intersect(result.OmitStages, config.OmitStages)
		}
		// An event has one form of the objects. What one route that gets objects must not have, none gets.
		result.OmitManagedFields = result.OmitManagedFields || config.OmitManagedFields && !config.Level.Less(auditinternal.LevelRequest)
		if result.Level.Less(config.Level) {
			result.Level = config.Level
		}
	}
	return result
}

// intersect returns the stages that are in both lists. It leaves the lists as they are: they belong to policies.
func intersect(a, b []auditinternal.Stage) []auditinternal.Stage {
	var both []auditinternal.Stage
	for _, stage := range a {
		if slices.Contains(b, stage) {
			both = append(both, stage)
		}
	}
	return both
}

// ProcessEvents implements audit.Sink.
func (r *Router) ProcessEvents(events ...*auditinternal.Event) bool {
	processed := true
	for _, event := range events {
		attributes := attributesOf(event)
		for _, route := range r.routes {
			config := route.Policy.EvaluatePolicyRule(attributes)
			if config.Level == auditinternal.LevelNone || slices.Contains(config.OmitStages, event.Stage) {
				continue
			}
			if route.Selects != nil && !route.Selects(event) {
				continue
			}
			if !route.Backend.ProcessEvents(atLevel(event, config.Level)) && !route.MayFail {
				processed = false
			}
		}
	}
	return processed
}

// atLevel returns the event without what a lower level does not have. Backends may add annotations to events with objects: those that truncate do.
func atLevel(event *auditinternal.Event, level auditinternal.Level) *auditinternal.Event {
	if event.Level.Less(auditinternal.LevelRequest) {
		return event
	}
	reduced := *event
	reduced.Annotations = maps.Clone(event.Annotations)
	if level.Less(event.Level) {
		reduced.Level = level
		reduced.ResponseObject = nil
	}
	if level.Less(auditinternal.LevelRequest) {
		reduced.RequestObject = nil
		// Patches of webhooks have content of objects.
		maps.DeleteFunc(reduced.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, mutating.PatchAuditAnnotationPrefix) })
	}
	return &reduced
}

// attributesOf returns the attributes of the request of an event, as policies evaluate them when the request arrives.
func attributesOf(event *auditinternal.Event) authorizer.Attributes {
	path, _, _ := strings.Cut(event.RequestURI, "?")
	if unescaped, err := url.PathUnescape(path); err == nil {
		path = unescaped
	}
	attributes := authorizer.AttributesRecord{Verb: event.Verb, Path: path}
	if event.User.Username != "" { // otherwise authentication failed
		attributes.User = &user.DefaultInfo{Name: event.User.Username, Groups: event.User.Groups}
	}
	if ref := event.ObjectRef; ref != nil {
		attributes.ResourceRequest = true
		if attributes.Name = ref.Name; ref.Namespace != "" {
			attributes.Namespace = namespaceOf(path) // that of ref may come from the body
		}
		attributes.APIGroup, attributes.APIVersion, attributes.Resource, attributes.Subresource = ref.APIGroup, ref.APIVersion, ref.Resource, ref.Subresource
		if event.Verb == "create" && ref.Subresource == "" {
			attributes.Name = "" // it comes from the body, which is decoded later
		}
	}
	return attributes
}

// namespaceOf returns the namespace in the path of a resource, as request.RequestInfoFactory finds it.
func namespaceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	skipped := 3 // "apis", group, version
	if parts[0] == "api" {
		skipped = 2
	}
	if len(parts) > skipped && (parts[skipped] == "watch" || parts[skipped] == "proxy") {
		skipped++
	}
	if len(parts) > skipped+1 && parts[skipped] == "namespaces" {
		return parts[skipped+1]
	}
	return ""
}

// Run implements audit.Backend.
func (r *Router) Run(stop <-chan struct{}) error {
	var errs []error
	for _, route := range r.routes {
		if err := route.Backend.Run(stop); err != nil {
			errs = append(errs, fmt.Errorf("starting the audit backend %s: %w", route.Backend, err))
		}
	}
	return utilerrors.NewAggregate(errs)
}

// Shutdown implements audit.Backend. The routes end at the same time, because each may wait for a slow receiver. Those that may fail have
// endTimeout; what they have not delivered by then is lost.
func (r *Router) Shutdown() {
	ctx, cancel := context.WithTimeout(context.Background(), r.endTimeout)
	defer cancel()
	var ends sync.WaitGroup
	for _, route := range r.routes {
		ends.Go(func() { route.end(ctx) })
	}
	ends.Wait()
}

func (r Route) end(ctx context.Context) {
	if !r.MayFail {
		r.Backend.Shutdown()
		return
	}
	ended := make(chan struct{})
	go func() { defer close(ended); r.Backend.Shutdown() }()
	select {
	case <-ended:
	case <-ctx.Done():
		klog.ErrorS(nil, "Audit backend does not end, the events that it has not delivered are lost", "backend", r.Backend.String())
	}
}

// String implements audit.Backend.
func (r *Router) String() string {
	names := make([]string, 0, len(r.routes))
	for _, route := range r.routes {
		names = append(names, route.Backend.String())
	}
	return "router[" + strings.Join(names, ",") + "]"
}
