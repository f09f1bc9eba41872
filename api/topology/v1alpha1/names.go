package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Condition types of PartitionSets.
const (
	// PartitionSetValid: the set says unmistakably which shards it is about.
	PartitionSetValid conditionsv1alpha1.Type = "PartitionSetValid"
	// PartitionsReady: the partitions of the set are those that its shards ask for.
	PartitionsReady conditionsv1alpha1.Type = "PartitionsReady"
)

const (
	// ReasonInvalidSelector is the reason of PartitionSetValid: spec.shardSelector selects nothing that can be told.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonErrorGeneratingPartitions is the reason of PartitionsReady: writing partitions met an error.
	ReasonErrorGeneratingPartitions = "ErrorGeneratingPartitions"
)
