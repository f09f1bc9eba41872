package virtual

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// lifecycleStates are the workspaces that the matrix of initializers and terminators covers.
var lifecycleStates = []string{"initializing", "foreign", "unbound", "terminating"}

func lifecycleVirtualWorkspace(name, service string) virtualWorkspace {
	return virtualWorkspace{
		name: name, states: lifecycleStates,
		basePath: func(s *env, state string) string {
			return "/services/" + service + "/" + s.clusters["provider"] + ":staged/clusters/" + s.clusters[state]
		},
		resources: map[string]resource{
			"documents": documentRequests,
			"cluster": {verbs: []string{"get", "create", "update", "patch", "delete", "deletecollection", "getstatus", "patchstatus", "getscale"},
				path: "/apis/core.kcp.io/v1alpha1/logicalclusters", name: func(string) string { return "cluster" },
				body: `{"apiVersion":"core.kcp.io/v1alpha1","kind":"LogicalCluster","metadata":{"name":"NAME"}}`},
			"content": {verbs: []string{"get", "list"}, path: "/api/v1/namespaces/default/configmaps", name: func(string) string { return "none" }},
		},
	}
}

// createLifecycleWorkspaces creates workspaces in each phase: their types belong to the provider, except for that of
// "foreign".
func (e *env) createLifecycleWorkspaces() {
	e.Helper()
	for _, name := range []string{"provider", "other-provider"} {
		e.createObjects(name, &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "staged"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{
			Initializer: true, Terminator: true,
			// The shard deletes the permissions of the creator with the content of the workspace, at once.
			TerminatorPermissions: []rbacv1.PolicyRule{{Verbs: []string{"get", "list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}},
		}})
	}
	staged := func(provider string) *tenancyv1alpha1.WorkspaceTypeReference {
		return &tenancyv1alpha1.WorkspaceTypeReference{Name: "staged", Path: e.clusters[provider]}
	}
	e.createWorkspace("initializing", "consumer", "Initializing", staged("provider"))
	e.createWorkspace("foreign", "consumer", "Initializing", staged("other-provider"))
	e.createWorkspace("terminating", "consumer", "Initializing", staged("provider"))
	shardtesting.Eventually(e.T, "the initializer is done", func(context.Context) error {
		cluster := &corev1alpha1.LogicalCluster{}
		if err := e.masters.Get(e.workspaceContext("terminating"), client.ObjectKey{Name: "cluster"}, cluster); err != nil {
			return err
		}
		if cluster.Status.Phase == corev1alpha1.LogicalClusterPhaseReady {
			return nil
		}
		cluster.Status.Initializers = nil
		if err := e.masters.Status().Update(e.workspaceContext("terminating"), cluster); err != nil {
			return err
		}
		return fmt.Errorf("phase %s", cluster.Status.Phase)
	})
	if err := e.masters.Delete(shardtesting.In(e.Context(), "root"), &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: "terminating"}}); err != nil {
		e.Fatal(err)
	}
	shardtesting.Eventually(e.T, "the workspace terminates", func(context.Context) error {
		cluster := &corev1alpha1.LogicalCluster{}
		if err := e.masters.Get(e.workspaceContext("terminating"), client.ObjectKey{Name: "cluster"}, cluster); err != nil {
			return err
		}
		if cluster.DeletionTimestamp == nil || cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseTerminating && cluster.Status.Phase != corev1alpha1.LogicalClusterPhaseDeleting {
			return fmt.Errorf("phase %s", cluster.Status.Phase)
		}
		return nil
	})
}
