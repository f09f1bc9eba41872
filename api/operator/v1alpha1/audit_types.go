package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AuditSpec says what a shard writes to its audit trail, and where to.
type AuditSpec struct {
	// policy says which requests are recorded, and how much of them.
	// +optional
	Policy *AuditPolicy `json:"policy,omitempty"`

	// webhook sends audit events to a remote service.
	// +optional
	Webhook *AuditWebhook `json:"webhook,omitempty"`
}

// AuditPolicy says where the audit policy is.
type AuditPolicy struct {
	// configMap holds the policy file.
	// +optional
	ConfigMap *AuditPolicyConfigMap `json:"configMap,omitempty"`
}

// AuditPolicyConfigMap names a key of a ConfigMap that holds an audit policy.
type AuditPolicyConfigMap struct {
	// name of the ConfigMap.
	// +required
	Name string `json:"name"`

	// key inside the ConfigMap.
	// +required
	Key string `json:"key"`
}

// AuditWebhook describes a service that takes audit events. A field left out keeps the server's own default.
type AuditWebhook struct {
	// configSecretName names a Secret whose key kubeconfig says how to reach the service.
	// +optional
	ConfigSecretName string `json:"configSecretName,omitempty"`

	// mode says whether requests wait for their audit events to be sent.
	// +optional
	Mode AuditWebhookMode `json:"mode,omitempty"`

	// batchBufferSize is the number of events held before they are sent.
	// +optional
	BatchBufferSize int `json:"batchBufferSize,omitempty"`

	// batchMaxSize is the largest number of events sent at once.
	// +optional
	BatchMaxSize int `json:"batchMaxSize,omitempty"`

	// batchMaxWait is the longest time an event waits for its batch to fill.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	BatchMaxWait *metav1.Duration `json:"batchMaxWait,omitempty"`

	// batchThrottleEnable limits the rate of batches.
	// +optional
	BatchThrottleEnable bool `json:"batchThrottleEnable,omitempty"`

	// batchThrottleBurst is the number of batches sent at once before the rate applies.
	// +optional
	BatchThrottleBurst int `json:"batchThrottleBurst,omitempty"`

	// batchThrottleQPS is the rate of batches per second, a decimal number.
	// +optional
	BatchThrottleQPS string `json:"batchThrottleQPS,omitempty"`

	// initialBackoff is the time before the first retry of a failed request.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	InitialBackoff *metav1.Duration `json:"initialBackoff,omitempty"`

	// truncateEnabled cuts events and batches that are too large.
	// +optional
	TruncateEnabled bool `json:"truncateEnabled,omitempty"`

	// truncateMaxBatchSize is the largest size of a batch in bytes.
	// +optional
	TruncateMaxBatchSize int `json:"truncateMaxBatchSize,omitempty"`

	// truncateMaxEventSize is the largest size of an event in bytes.
	// +optional
	TruncateMaxEventSize int `json:"truncateMaxEventSize,omitempty"`

	// version of the audit API that the service speaks.
	// +optional
	Version string `json:"version,omitempty"`
}

// AuditWebhookMode says whether requests wait for their audit events: batch does not, blocking does,
// blocking-strict also fails the request when its event cannot be sent.
// +kubebuilder:validation:Enum="";batch;blocking;blocking-strict
type AuditWebhookMode string
