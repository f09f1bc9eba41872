package v1alpha1

import kjson "sigs.k8s.io/json"

// UnmarshalJSON sets the default of served, true, because a decoded object does not show whether the field was set.
func (a *APIResourceVersion) UnmarshalJSON(data []byte) error {
	type plain APIResourceVersion
	version := plain{Served: true}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &version); err != nil {
		return err
	}
	*a = APIResourceVersion(version)
	return nil
}
