package topology

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	topologyv1alpha1 "github.com/atoll-dev/atoll/api/topology/v1alpha1"
	"github.com/atoll-dev/atoll/shardserver/apis/registry"
)

var partitions = &registry.Kind[*topologyv1alpha1.Partition]{
	Resource: topologyv1alpha1.SchemeGroupVersion.WithResource("partitions"),
	Singular: "partition",

	New:      func() *topologyv1alpha1.Partition { return &topologyv1alpha1.Partition{} },
	NewList:  func() runtime.Object { return &topologyv1alpha1.PartitionList{} },
	CopySpec: func(to, from *topologyv1alpha1.Partition) { to.Spec = from.Spec },
	SameSpec: func(a, b *topologyv1alpha1.Partition) bool { return equality.Semantic.DeepEqual(a.Spec, b.Spec) },

	ValidateName: validateName,
	ValidateSpec: func(partition *topologyv1alpha1.Partition) field.ErrorList {
		return registry.ValidateSelector(partition.Spec.Selector, field.NewPath("spec", "selector"))
	},

	Columns: registry.Columns{registry.Column("Owner", ".metadata.ownerReferences[*].name"), registry.Age},
}
