package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AuditSpec configures the audit log of a shard.
type AuditSpec struct {
	// policy selects the requests that are recorded, and the level.
	// +optional
	Policy *AuditPolicy `json:"policy,omitempty"`

	// webhook sends audit events to a remote service.
	// +optional
	Webhook *AuditWebhook `json:"webhook,omitempty"`
}

// AuditPolicy is the source of the audit policy.
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

// AuditWebhook describes a service that receives audit events. The default of each field is that of the server.
type AuditWebhook struct {
	// configSecretName names a Secret with a kubeconfig of the service, under the key kubeconfig.
	// +optional
	ConfigSecretName string `json:"configSecretName,omitempty"`

	// mode defines whether requests wait for their audit events to be sent.
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

	// version of the audit API of the service.
	// +optional
	Version string `json:"version,omitempty"`
}

// AuditWebhookMode defines whether requests wait for their audit events: batch does not, blocking does,
// blocking-strict also fails the request when its event cannot be sent.
// +kubebuilder:validation:Enum="";batch;blocking;blocking-strict
type AuditWebhookMode string
