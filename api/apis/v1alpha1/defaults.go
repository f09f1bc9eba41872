package v1alpha1

import kjson "sigs.k8s.io/json"

// UnmarshalJSON decodes a version that is served unless it says otherwise: a Go type cannot tell later whether nothing
// was said.
func (in *APIResourceVersion) UnmarshalJSON(data []byte) error {
	type plain APIResourceVersion
	version := plain{Served: true}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &version); err != nil {
		return err
	}
	*in = APIResourceVersion(version)
	return nil
}
