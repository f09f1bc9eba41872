package kubeconfig

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/atoll-dev/atoll/controllers/shardclient"
	"github.com/atoll-dev/atoll/logicalcluster"
)

// Argo CD reads the kinds and schemas of a cluster once, and again when a CustomResourceDefinition or an APIService changes. An
// APIBinding is neither: Argo CD would not watch, prune or delete objects of a kind that is bound later, and could not compare them with
// server-side apply. Therefore the Secret of the cluster requests a refresh whenever the APIs of the workspace change.
const (
	// annotationRefresh is an annotation of Argo CD: it reads the cluster again if it has not done so since the time in the annotation.
	annotationRefresh = "argocd.argoproj.io/refresh"
	// annotationAPIs contains the hash of the APIs at the last request.
	annotationAPIs = "operator.kcp.io/served-apis"

	// refreshInterval is how often the reconciler reads the APIs of a registered workspace, and its Secret, whose events enqueue no
	// Kubeconfig of another namespace.
	refreshInterval = 30 * time.Second
	// refreshAhead is how far in the future a request is dated, so that a read that started before the change, or one by a clock that is
	// ahead, does not satisfy it.
	refreshAhead = time.Minute
)

// servedAPIs returns the hash of the APIs of the workspace, or "" if they cannot be read, for example because the workspace does not
// exist yet.
func (s *scope) servedAPIs(ctx context.Context) string {
	path, err := logicalcluster.ParsePath(s.user.Workspace)
	if err != nil || path == logicalcluster.Wildcard.Path() { // it becomes part of a URL that the operator requests with its own rights
		return ""
	}
	apis, err := shardclient.New(s.config.Cluster).ServedAPIs(ctx, s.target.root, path)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("Failed to read the APIs for Argo CD", "workspace", s.user.Workspace, "err", err)
	}
	return apis
}

// refreshAnnotations returns the annotations for the Secret that registers a workspace, from those of the existing one. They contain a
// new request if the APIs have changed. A workspace that is not registered yet needs no request, because Argo CD has not read it.
func refreshAnnotations(existing *corev1.Secret, apis string, now time.Time) map[string]string {
	annotations := map[string]string{}
	if existing != nil {
		for _, key := range []string{annotationAPIs, annotationRefresh} {
			if value, ok := existing.Annotations[key]; ok {
				annotations[key] = value
			}
		}
	}
	if apis == "" || apis == annotations[annotationAPIs] {
		return annotations
	}
	annotations[annotationAPIs] = apis
	if existing != nil {
		annotations[annotationRefresh] = now.Add(refreshAhead).UTC().Format(time.RFC3339)
	}
	return annotations
}
