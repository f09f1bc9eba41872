package workspaces

import (
	"fmt"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
)

// EndpointURLs returns the URLs of a slice. It returns an error if the slice may not list all endpoints: its export or partition cannot be
// found, or no controller has reconciled it yet.
func EndpointURLs(slice *apisv1alpha1.APIExportEndpointSlice) ([]string, error) {
	if !conditionsv1alpha1.IsTrue(slice, apisv1alpha1.APIExportValid) {
		return nil, invalidSlice(slice, apisv1alpha1.APIExportValid)
	}
	partition := conditionsv1alpha1.Get(slice, apisv1alpha1.PartitionValid)
	if (partition != nil || slice.Spec.Partition != "") && !conditionsv1alpha1.IsTrue(slice, apisv1alpha1.PartitionValid) {
		return nil, invalidSlice(slice, apisv1alpha1.PartitionValid)
	}
	return ListedURLs(slice), nil
}

// ListedURLs returns the URLs that a slice lists, which may not be all. It returns an empty list, not nil, if it lists none.
func ListedURLs(slice *apisv1alpha1.APIExportEndpointSlice) []string {
	urls := make([]string, 0, len(slice.Status.APIExportEndpoints))
	for _, endpoint := range slice.Status.APIExportEndpoints {
		urls = append(urls, endpoint.URL)
	}
	return urls
}

func invalidSlice(slice *apisv1alpha1.APIExportEndpointSlice, missing conditionsv1alpha1.Type) error {
	message := "it is not set"
	if condition := conditionsv1alpha1.Get(slice, missing); condition != nil {
		message = condition.Message
	}
	return fmt.Errorf("condition %s of APIExportEndpointSlice %s is not true: %s", missing, slice.Name, message)
}
