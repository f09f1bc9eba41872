package export

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apiindex"
)

// setURLs sets status.virtualWorkspaces, which APIExportEndpointSlices replace, to the URLs of all shards.
func (c *exportController) setURLs(ctx context.Context, export *apisv1alpha2.APIExport, status *apisv1alpha2.APIExportStatus) error {
	all, err := c.shards.List(ctx)
	if err != nil {
		return fmt.Errorf("listing shards: %w", err)
	}
	var urls []string
	var problem string
	for _, shard := range all {
		if shard.Spec.VirtualWorkspaceURL == "" {
			continue // registration is not complete
		}
		if _, err := url.Parse(shard.Spec.VirtualWorkspaceURL); err != nil {
			problem = fmt.Sprintf("shard %q has no usable spec.virtualWorkspaceURL; its administrator has to correct it", shard.Name)
			continue
		}
		urls = append(urls, apiindex.VirtualWorkspaceURL(shard, apiindex.ExportKeyOf(export)))
	}
	slices.SortFunc(urls, strings.Compare)
	status.VirtualWorkspaces = nil
	for _, virtualWorkspaceURL := range slices.Compact(urls) {
		status.VirtualWorkspaces = append(status.VirtualWorkspaces, apisv1alpha2.VirtualWorkspace{URL: virtualWorkspaceURL})
	}
	holder := &apisv1alpha2.APIExport{Status: *status}
	if problem != "" {
		conditionsv1alpha1.MarkFalse(holder, apisv1alpha2.APIExportVirtualWorkspaceURLsReady, apisv1alpha2.ErrorGeneratingURLsReason, conditionsv1alpha1.SeverityError, "%s", problem)
	} else {
		conditionsv1alpha1.MarkTrue(holder, apisv1alpha2.APIExportVirtualWorkspaceURLsReady)
	}
	status.Conditions = holder.Status.Conditions
	return nil
}

// removeURLs removes what setURLs sets, after DeprecatedURLs was disabled.
func removeURLs(status *apisv1alpha2.APIExportStatus) {
	holder := &apisv1alpha2.APIExport{Status: *status}
	conditionsv1alpha1.Delete(holder, apisv1alpha2.APIExportVirtualWorkspaceURLsReady)
	status.Conditions, status.VirtualWorkspaces = holder.Status.Conditions, nil
}
