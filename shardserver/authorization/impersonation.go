package authorization

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/filters/impersonation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// guardedGroups may be impersonated only by their own members: a tenant's RBAC can grant `impersonate` on any name,
// but these names mean something outside of the tenant's logical cluster.
var guardedGroups = []string{
	GroupMasters,
	GroupLogicalClusterAdmin,
	GroupExternalLogicalClusterAdmin,
	GroupBootstrapper,
	GroupAdmin,
	user.AllAuthenticated,
}

// WithImpersonation is the stock impersonation filter between two additions: groups with power beyond a logical
// cluster are refused to everybody who is not a member, and who was impersonated counts in the request's logical
// cluster alone. It belongs behind authentication and request info, in front of authorization.
//
// It builds on the filter that keeps no decisions; the "constrained" one of the same package caches them by user
// alone, which would carry a decision from one logical cluster into another (wall W7).
func WithImpersonation(handler http.Handler, a authorizer.Authorizer, s runtime.NegotiatedSerializer) http.Handler {
	stock := impersonation.WithImpersonation(withScope(handler), a, s)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		requester, ok := request.UserFrom(req.Context())
		if !ok || !impersonates(req.Header) || slices.Contains(requester.GetGroups(), GroupMasters) {
			stock.ServeHTTP(w, req)
			return
		}
		cluster, _ := logicalcluster.From(req.Context())
		held := EffectiveGroups(EffectiveUsers(cluster, requester))
		for _, group := range requestedGroups(req.Header) {
			if guarded(group) && !held[group] {
				refuse(w, req, s)
				return
			}
		}
		stock.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), requesterKey{}, requester)))
	})
}

var errImpersonation = errors.New("impersonation is not allowed for the requestor")

type requesterKey struct{}

// withScope narrows an impersonated user to the request's logical cluster.
func withScope(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx := req.Context()
		if requester, ok := ctx.Value(requesterKey{}).(user.Info); ok {
			if u, ok := request.UserFrom(ctx); ok && u != requester {
				cluster, _ := logicalcluster.From(ctx)
				req = req.WithContext(request.WithUser(ctx, scoped(u, cluster)))
			}
		}
		handler.ServeHTTP(w, req)
	})
}

func scoped(u user.Info, cluster logicalcluster.Name) user.Info {
	extra := maps.Clone(u.GetExtra())
	if extra == nil {
		extra = map[string][]string{}
	}
	extra[ScopesExtraKey] = append(slices.Clone(extra[ScopesExtraKey]), scopePrefix+cluster.String())
	return &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
}

func impersonates(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

// requestedGroups are the groups that a request asks for, openly or inside a warrant.
func requestedGroups(header http.Header) []string {
	groups := slices.Clone(header[authenticationv1.ImpersonateGroupHeader])
	for name, values := range header {
		key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			continue
		}
		if decoded, err := url.PathUnescape(strings.ToLower(key)); err != nil || decoded != WarrantExtraKey {
			continue
		}
		for _, value := range values {
			groups = append(groups, warrantGroups(value)...)
		}
	}
	return groups
}

// warrantGroups are the groups inside a warrant and the warrants inside it. Being authenticated is no power that a
// warrant could add.
func warrantGroups(encoded string) []string {
	bearer, ok := decodeWarrant(encoded)
	if !ok {
		return nil
	}
	groups := slices.DeleteFunc(slices.Clone(bearer.GetGroups()), func(group string) bool { return group == user.AllAuthenticated })
	for _, inner := range bearer.GetExtra()[WarrantExtraKey] {
		groups = append(groups, warrantGroups(inner)...)
	}
	return groups
}

func guarded(group string) bool {
	return slices.Contains(guardedGroups, group) ||
		strings.HasPrefix(group, InitializerGroupPrefix) || strings.HasPrefix(group, TerminatorGroupPrefix)
}

func refuse(w http.ResponseWriter, req *http.Request, s runtime.NegotiatedSerializer) {
	var gv schema.GroupVersion
	resource := schema.GroupResource{}
	name := ""
	if info, ok := request.RequestInfoFrom(req.Context()); ok {
		gv = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		resource = schema.GroupResource{Group: info.APIGroup, Resource: info.Resource}
		name = info.Name
	}
	err := apierrors.NewForbidden(resource, name, errImpersonation)
	responsewriters.ErrorNegotiated(err, s, gv, w, req)
}
