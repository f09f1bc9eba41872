package v1alpha1

import conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"

// Condition types of PartitionSets.
const (
	// PartitionSetValid is True if the shard selector of the set is valid.
	PartitionSetValid conditionsv1alpha1.Type = "PartitionSetValid"
	// PartitionsReady is True if the partitions of the set match the shards.
	PartitionsReady conditionsv1alpha1.Type = "PartitionsReady"
)

const (
	// ReasonInvalidSelector is a reason of PartitionSetValid. It means that spec.shardSelector is invalid.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonErrorGeneratingPartitions is a reason of PartitionsReady. It means that partitions could not be written.
	ReasonErrorGeneratingPartitions = "ErrorGeneratingPartitions"
)
