// Package syncerview describes the syncer's view of an APIExport: which of its resources a sync agent syncs, under which
// names, and with which filters. The agent publishes the description in an annotation of its export, which every shard
// has; shards serve the view below /services/syncer/. Serving and publishing it do not belong here.
package syncerview

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
)

const (
	// Annotation is the annotation of an APIExport with the description, as JSON.
	Annotation = syncagentv1alpha1.GroupName + "/view"
	// MaxSize bounds the annotation, in bytes.
	MaxSize = 64 << 10
	// Verb is the verb on an APIExport that allows a caller to use its view.
	Verb = "sync"
	// RevisionHeader is the header of requests for a published resource with the Revision of the description that the caller uses. Shards
	// receive descriptions with a delay; a shard that has another description refuses the request.
	RevisionHeader = "Syncagent-View-Revision"

	exportPrefix = "/services/apiexport/"
	prefix       = "/services/syncer/"
)

// View describes the syncer's view of an export.
type View struct {
	// Resources are the resources of the export whose objects the agent syncs.
	Resources []Resource `json:"resources,omitempty"`
	// Related are resources of the export whose objects belong to objects of other resources. They keep their names.
	Related []metav1.GroupResource `json:"related,omitempty"`
}

// Resource is a resource of the export whose objects are synced.
type Resource struct {
	// GroupResource is its name in workspaces.
	metav1.GroupResource `json:",inline"`
	// Source is its name on the service cluster, and in the view.
	Source Source `json:"source"`
	// Filter restricts the objects; nil selects all.
	Filter *syncagentv1alpha1.ResourceFilter `json:"filter,omitempty"`
	// Revision changes with the other fields, even if a shard does not support all of them. It is opaque to shards.
	Revision string `json:"revision,omitempty"`

	// Objects and Namespaces are the selectors of the filter. They are nil if it does not select by the labels of objects
	// or of their namespaces.
	Objects    labels.Selector `json:"-"`
	Namespaces labels.Selector `json:"-"`
}

// Source is the name of a resource on the service cluster.
type Source struct {
	Group    string `json:"group,omitempty"`
	Kind     string `json:"kind"`
	Resource string `json:"resource"`
	// Versions maps versions in workspaces to those of the service cluster. Other versions have the same name on both sides.
	Versions map[string]string `json:"versions,omitempty"`
}

// GroupResource returns the resource on the service cluster.
func (s Source) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: s.Group, Resource: s.Resource}
}

// VersionOf returns the version of the service cluster for one in workspaces.
func (s Source) VersionOf(workspaceVersion string) string {
	if version, ok := s.Versions[workspaceVersion]; ok {
		return version
	}
	return workspaceVersion
}

// WorkspaceVersionOf returns the version in workspaces for one of the service cluster, and whether it may exist.
func (s Source) WorkspaceVersionOf(version string) (string, bool) {
	for workspaceVersion, mapped := range s.Versions {
		if mapped == version {
			return workspaceVersion, true
		}
	}
	_, renamed := s.Versions[version]
	return version, !renamed
}

// Parse decodes and validates the annotation of an export.
func Parse(text string) (*View, error) {
	path := field.NewPath("metadata", "annotations").Key(Annotation)
	if len(text) > MaxSize {
		return nil, field.TooLong(path, "", MaxSize)
	}
	view := &View{}
	if err := json.Unmarshal([]byte(text), view); err != nil {
		return nil, field.Invalid(path, text, err.Error())
	}
	if errs := view.compile(path); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return view, nil
}

// Encode returns the annotation for an export. It fails for a description that Parse refuses.
func (v *View) Encode() (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encoding the description of the syncer's view: %w", err)
	}
	_, err = Parse(string(text))
	return string(text), err
}

// ParseID returns the logical cluster and the name of the export of a path segment, which identifies the view of the export.
func ParseID(id string) (cluster, export string, ok bool) {
	cluster, export, ok = strings.Cut(id, ":")
	if _, err := logicalcluster.ParseName(cluster); err != nil {
		return "", "", false
	}
	return cluster, export, ok && export != "" && !strings.Contains(export, ":")
}

// URL returns the URL of the syncer's view for an endpoint of an APIExportEndpointSlice. It returns false for an endpoint
// that is not the virtual workspace of an export.
func URL(endpoint string) (string, bool) {
	at := strings.LastIndex(endpoint, exportPrefix)
	if at < 0 {
		return "", false
	}
	cluster, export, ok := strings.Cut(strings.TrimSuffix(endpoint[at+len(exportPrefix):], "/"), "/")
	if !ok || strings.Contains(export, "/") {
		return "", false
	}
	id := cluster + ":" + export
	if _, _, valid := ParseID(id); !valid {
		return "", false
	}
	return endpoint[:at] + prefix + id, true
}
