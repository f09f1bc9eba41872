package subresources

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	"github.com/atoll-dev/atoll/shardserver/sharding/endpoints"
)

const (
	// maxRecordBytes bounds the JSON of a Record, because an object has room for 256 KiB of annotations.
	maxRecordBytes = 64 << 10
	// maxEndpoints bounds the addresses of one subresource.
	maxEndpoints = 64
)

// Backend is what is known of the backend of a custom subresource.
type Backend struct {
	// Endpoints are status.endpoints of the object that the entry of the export references; empty if it has none or cannot be read.
	Endpoints []endpoints.Endpoint `json:"endpoints,omitempty"`
	// Verbs are the verbs in the discovery of the backend, by version of the API; none while that is not known.
	Verbs map[string]metav1.Verbs `json:"verbs,omitempty"`
}

// Record has the backends of the custom subresources of an export, by "<resource>/<subresource>.<group>".
type Record map[string]Backend

// ParseRecord returns the record of an export. One that cannot be read is ignored.
func ParseRecord(export *apisv1alpha2.APIExport) Record {
	text := export.Annotations[apisv1alpha2.SubresourceBackendsAnnotationKey]
	var record Record
	if text == "" || json.Unmarshal([]byte(text), &record) != nil {
		return nil
	}
	return record
}

// Get returns the backend of an entry.
func (r Record) Get(entry *apisv1alpha2.ResourceSchema) Backend { return r[keyOf(entry)] }

// VerbsIn returns the verbs of a version that a request for a subresource can have, ordered. Authors of the export can write its record.
func (b Backend) VerbsIn(version string) metav1.Verbs { return servedVerbs(b.Verbs[version]) }

func keyOf(entry *apisv1alpha2.ResourceSchema) string {
	return schema.GroupResource{Group: entry.Group, Resource: entry.Name}.String()
}

// String returns the record as JSON; "" if it is empty. Verbs that have no room are left out, then everything.
func (r Record) String() string {
	if len(r) == 0 {
		return ""
	}
	text := r.encode()
	if len(text) > maxRecordBytes {
		small := make(Record, len(r))
		for key, backend := range r {
			small[key] = Backend{Endpoints: backend.Endpoints}
		}
		text = small.encode()
	}
	if len(text) > maxRecordBytes {
		return ""
	}
	return text
}

func (r Record) encode() string {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // it consists of text, which can always be encoded
	}
	return string(text)
}
