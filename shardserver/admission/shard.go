package admission

import (
	"context"
	"errors"

	"k8s.io/apiserver/pkg/admission"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

// shard defaults the addresses of a Shard to its base URL.
type shard struct{ *admission.Handler }

func newShard(Config) admission.Interface {
	return &shard{admission.NewHandler(admission.Create, admission.Update)}
}

// Admit implements admission.MutationInterface.
func (s *shard) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != shards || a.GetSubresource() != "" {
		return nil
	}
	obj, err := objectOf[*corev1alpha1.Shard](a.GetObject())
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
