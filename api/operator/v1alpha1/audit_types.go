package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AuditSpec configures the audit log of a shard. Without policy and sinks, the shard records nothing but the latest events of each workspace, in
// memory, for the administrators of the workspace.
type AuditSpec struct {
	// policy selects the requests that webhook and the audit log of the shard record, and how much of each. If unset, these
	// record none.
	// +optional
	Policy *AuditPolicy `json:"policy,omitempty"`

	// webhook sends audit events to a remote service. It has no effect without policy and configSecretName; the
	// condition SpecHonored then says so.
	// +optional
	Webhook *AuditWebhook `json:"webhook,omitempty"`

	// sinks are webhooks, files and S3 buckets that get the events of selected workspaces, each by a policy of its own. They do
	// not need policy.
	// +optional
	Sinks *AuditSinks `json:"sinks,omitempty"`
}

// AuditSinks is the source of a file of kind AuditSinks.
type AuditSinks struct {
	// secretName names a Secret in the same namespace. Its key sinks.yaml has the sinks. Other keys are files that sinks
	// name: policies, kubeconfigs, credentials and certificates. The pods of the shard do not start while the Secret
	// does not exist. They read it when they start.
	// +required
	SecretName string `json:"secretName"`
}

// AuditPolicy is the source of the audit policy.
type AuditPolicy struct {
	// configMap names the key of a ConfigMap with a Policy of audit.k8s.io/v1. If unset, webhook and the audit
	// log of the shard record no request.
	// +optional
	ConfigMap *AuditPolicyConfigMap `json:"configMap,omitempty"`
}

// AuditPolicyConfigMap names a key of a ConfigMap with an audit policy.
type AuditPolicyConfigMap struct {
	// name is the name of a ConfigMap in the same namespace. The pods of the shard do not start while it does not
	// exist.
	// +required
	Name string `json:"name"`

	// key is the key of the ConfigMap whose value is the policy, in YAML or JSON.
	// +required
	Key string `json:"key"`
}

// AuditWebhook describes a service that receives audit events. A field that is unset, 0 or false has the default of
// the server.
type AuditWebhook struct {
	// configSecretName names a Secret in the same namespace. Its key kubeconfig has the address of the service and
	// the credentials for it. If unset, no events are sent.
	// +optional
	ConfigSecretName string `json:"configSecretName,omitempty"`

	// mode defines whether a request waits until its audit events are sent. batch: it does not wait, and events are
	// sent in batches; blocking: it waits; blocking-strict: it waits, and fails if the event of its arrival cannot be
	// sent. Defaults to batch.
	// +optional
	Mode AuditWebhookMode `json:"mode,omitempty"`

	// batchBufferSize is the number of events that wait to be sent; further events are dropped. Used in the mode
	// batch only. Defaults to 10000.
	// +optional
	BatchBufferSize int `json:"batchBufferSize,omitempty"`

	// batchMaxSize is the largest number of events in a batch. Used in the mode batch only. Defaults to 400.
	// +optional
	BatchMaxSize int `json:"batchMaxSize,omitempty"`

	// batchMaxWait is the longest time that an event waits until its batch is full, for example 10s. Used in the mode
	// batch only. Defaults to 30s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	BatchMaxWait *metav1.Duration `json:"batchMaxWait,omitempty"`

	// batchThrottleEnable limits the rate of batches. The server limits it by default, and false has no effect.
	// +optional
	BatchThrottleEnable bool `json:"batchThrottleEnable,omitempty"`

	// batchThrottleBurst is the number of batches that are sent at once before batchThrottleQPS applies. Defaults to
	// 15.
	// +optional
	BatchThrottleBurst int `json:"batchThrottleBurst,omitempty"`

	// batchThrottleQPS is the average number of batches per second, a decimal number such as "2.5". Defaults to 10.
	// +optional
	BatchThrottleQPS string `json:"batchThrottleQPS,omitempty"`

	// initialBackoff is the time before the first retry of a failed request, for example 5s. Defaults to 10s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`
	InitialBackoff *metav1.Duration `json:"initialBackoff,omitempty"`

	// truncateEnabled splits batches and cuts events that exceed the sizes below. Defaults to false.
	// +optional
	TruncateEnabled bool `json:"truncateEnabled,omitempty"`

	// truncateMaxBatchSize is the largest size of a batch, in bytes. Used if truncateEnabled is true. Defaults to
	// 10485760.
	// +optional
	TruncateMaxBatchSize int `json:"truncateMaxBatchSize,omitempty"`

	// truncateMaxEventSize is the largest size of an event, in bytes: of larger ones, request and response are
	// removed, and what is still larger is dropped. Used if truncateEnabled is true. Defaults to 102400.
	// +optional
	TruncateMaxEventSize int `json:"truncateMaxEventSize,omitempty"`

	// version is the API group and version of the events that the service receives. Defaults to audit.k8s.io/v1.
	// +optional
	Version string `json:"version,omitempty"`
}

// AuditWebhookMode defines whether a request waits until its audit events are sent.
// +kubebuilder:validation:Enum="";batch;blocking;blocking-strict
type AuditWebhookMode string
