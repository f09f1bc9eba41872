package core

import (
	"context"
	"errors"
	"slices"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/admission/rules"
	"github.com/atoll-dev/atoll/shardserver/apis/core"
	"github.com/atoll-dev/atoll/shardserver/authorization"
)

// shard defaults the addresses of a Shard to its base URL, and refuses writes of users: shards own these objects.
type shard struct{ *admission.Handler }

// NewShard returns the plug-in tenancy.kcp.io/Shard.
func NewShard(rules.Config) admission.Interface {
	return &shard{admission.NewHandler(admission.Create, admission.Update, admission.Delete)}
}

// Admit implements admission.MutationInterface.
func (s *shard) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.Shards || a.GetSubresource() != "" || a.GetOperation() == admission.Delete {
		return nil
	}
	obj, err := rules.ObjectOf[*corev1alpha1.Shard](a.GetObject())
	if err != nil {
		return err
	}
	if obj.Spec.BaseURL == "" {
		return errors.New("spec.baseURL is required") // returned as 500, as in kcp
	}
	if obj.Spec.ExternalURL == "" {
		obj.Spec.ExternalURL = obj.Spec.BaseURL
	}
	if obj.Spec.VirtualWorkspaceURL == "" {
		obj.Spec.VirtualWorkspaceURL = obj.Spec.BaseURL
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (s *shard) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != rules.Shards || core.IsDecision(ctx) || mayWriteShards(ctx, a) {
		return nil
	}
	return rules.Forbid(a, "Shard objects are owned by the shards. Administrators close a shard, or limit it, in the admin workspace, at /services/admin (kubectl ws :admin)")
}

// mayWriteShards reports whether a request is of a server, or of system:masters. Shards of earlier versions write their Shard in root.
func mayWriteShards(ctx context.Context, a admission.Attributes) bool {
	who := a.GetUserInfo()
	if slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	cluster, _ := logicalcluster.From(ctx)
	return cluster == logicalcluster.Root && slices.Contains(who.GetGroups(), authorization.GroupShard) && who.GetName() == authorization.ShardUserPrefix+a.GetName()
}
