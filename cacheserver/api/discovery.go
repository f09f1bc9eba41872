package api

import (
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/atoll-dev/atoll/cacheserver/client"
)

// verbs are the verbs of every resource.
var verbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// newDiscoveryDocuments returns the documents about the resources, which are the same in every scope.
func newDiscoveryDocuments(resources []client.Resource) ([]metav1.APIGroup, map[schema.GroupVersion]*metav1.APIResourceList) {
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, resource := range resources {
		gv := resource.GroupVersion()
		if lists[gv] == nil {
			lists[gv] = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
		}
		lists[gv].APIResources = append(lists[gv].APIResources, metav1.APIResource{
			Name: resource.Resource, SingularName: strings.ToLower(resource.Kind), Kind: resource.Kind, Namespaced: resource.Namespaced, Verbs: verbs,
		})
	}
	byName := map[string]*metav1.APIGroup{}
	for gv, list := range lists {
		slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
		if byName[gv.Group] == nil {
			byName[gv.Group] = &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: gv.Group}
		}
		group := byName[gv.Group]
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	var groups []metav1.APIGroup
	for _, group := range byName {
		slices.SortFunc(group.Versions, func(a, b metav1.GroupVersionForDiscovery) int { return strings.Compare(b.Version, a.Version) })
		group.PreferredVersion = group.Versions[0]
		groups = append(groups, *group)
	}
	slices.SortFunc(groups, func(a, b metav1.APIGroup) int { return strings.Compare(a.Name, b.Name) })
	return groups, lists
}

// serveDiscovery responds to requests without a resource.
func (h *Handler) serveDiscovery(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		h.WriteError(apierrors.NewGenericServerResponse(http.StatusMethodNotAllowed, req.Method, schema.GroupResource{}, "", "", 0, true), w, req)
		return
	}
	document := h.findDiscoveryDocument(strings.Split(strings.Trim(req.URL.Path, "/"), "/"))
	if document == nil {
		h.WriteError(apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true), w, req)
		return
	}
	responsewriters.WriteObjectNegotiated(Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{Version: "v1"}, w, req, http.StatusOK, document, false)
}

// findDiscoveryDocument returns the document at a path, or nil.
func (h *Handler) findDiscoveryDocument(segments []string) runtime.Object {
	switch {
	case segments[0] == "api" && len(segments) == 1:
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{}}
	case segments[0] != "apis" || len(segments) > 3:
		return nil
	case len(segments) == 1:
		return &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: h.groups}
	case len(segments) == 2:
		for i := range h.groups {
			if h.groups[i].Name == segments[1] {
				return h.groups[i].DeepCopy()
			}
		}
		return nil
	}
	if list := h.lists[schema.GroupVersion{Group: segments[1], Version: segments[2]}]; list != nil {
		return list.DeepCopy()
	}
	return nil
}
