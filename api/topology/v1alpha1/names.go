package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Condition types of PartitionSets.
const (
	// PartitionSetValid: the shard selector of the set is valid.
	PartitionSetValid conditionsv1alpha1.Type = "PartitionSetValid"
	// PartitionsReady: the partitions of the set match the shards.
	PartitionsReady conditionsv1alpha1.Type = "PartitionsReady"
)

const (
	// ReasonInvalidSelector is the reason of PartitionSetValid: spec.shardSelector is invalid.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonErrorGeneratingPartitions is the reason of PartitionsReady: partitions could not be written.
	ReasonErrorGeneratingPartitions = "ErrorGeneratingPartitions"
)
