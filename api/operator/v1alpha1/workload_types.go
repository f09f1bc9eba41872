package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// ImageSpec selects the container image of a component.
type ImageSpec struct {
	// repository is the name of the image with its registry, without a tag. If it ends in "@sha256", tag is a digest.
	// Defaults to the repository of the operator's default image.
	// +optional
	Repository string `json:"repository,omitempty"`

	// tag is the tag of the image, or its digest if repository ends in "@sha256". Defaults to the tag of the
	// operator's default image.
	// +optional
	Tag string `json:"tag,omitempty"`

	// imagePullSecrets name Secrets in the same namespace with credentials for the registry.
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// LoggingSpec configures the log verbosity of a component.
type LoggingSpec struct {
	// level is the verbosity, from 1 (few lines) to 10 (everything, including bodies of requests). If unset or 0, the
	// default of the server applies.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Level int `json:"level,omitempty"`
}

// ExternalConfig is the address at which clients outside of the cluster reach a component. In a FrontProxy, hostname
// may be empty and port 0, as clients of kcp-operator send them.
// +kubebuilder:validation:XValidation:rule="size(self.hostname) == 0 || (self.port >= 1 && self.port <= 65535)",fieldPath=".port",message="must be from 1 to 65535"
// +kubebuilder:validation:XValidation:rule="!has(self.privatePort) || (self.privatePort >= 1 && self.privatePort <= 65535)",fieldPath=".privatePort",message="must be from 1 to 65535"
type ExternalConfig struct {
	// hostname is the DNS name or IP address that clients connect to, without scheme, port and path.
	// +required
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') && !self.matches('^[^:]*:[0-9]+$')",message="hostname is a DNS name or an IP address, without scheme, port and path"
	Hostname string `json:"hostname"`

	// port is the TCP port that clients connect to, from 1 to 65535.
	// +required
	Port int32 `json:"port"`

	// privateHostname is the DNS name or IP address at which shards reach the front proxy, without scheme, port and
	// path. Defaults to hostname.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') && !self.matches('^[^:]*:[0-9]+$')",message="privateHostname is a DNS name or an IP address, without scheme, port and path"
	PrivateHostname string `json:"privateHostname,omitempty"`

	// privatePort is the port for privateHostname. Defaults to port.
	// +optional
	PrivatePort *int32 `json:"privatePort,omitempty"`
}

// ServiceTemplate changes the Service that the operator creates for a component.
type ServiceTemplate struct {
	// metadata is added to the metadata of the Service.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// spec changes fields of the Service. Fields that are unset keep the operator's values.
	// +optional
	Spec *ServiceSpecTemplate `json:"spec,omitempty"`
}

// ServiceSpecTemplate holds the configurable fields of a Service.
type ServiceSpecTemplate struct {
	// type is ClusterIP, NodePort or LoadBalancer. Defaults to ClusterIP.
	// +optional
	Type corev1.ServiceType `json:"type,omitempty"`

	// clusterIP is the address of the Service in the cluster. It cannot be changed once the Service exists. If unset,
	// the cluster assigns one.
	// +optional
	ClusterIP string `json:"clusterIP,omitempty"`
}

// DeploymentTemplate changes the Deployment that the operator creates for a component.
type DeploymentTemplate struct {
	// metadata is added to the metadata of the Deployment.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// spec changes the pods of the Deployment.
	// +optional
	Spec *DeploymentSpecTemplate `json:"spec,omitempty"`
}

// DeploymentSpecTemplate holds the configurable part of the spec of a Deployment.
type DeploymentSpecTemplate struct {
	// template changes the pods.
	// +optional
	Template *PodTemplate `json:"template,omitempty"`
}

// PodTemplate changes the pods of a component.
type PodTemplate struct {
	// metadata is added to the metadata of every pod.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// spec changes fields of every pod. Fields that are unset keep the operator's values.
	// +optional
	Spec *PodSpecTemplate `json:"spec,omitempty"`
}

// PodSpecTemplate holds the configurable fields of a pod. If a field is unset, the operator's value is used.
type PodSpecTemplate struct {
	// nodeSelector restricts the pods to nodes with these labels. If unset, they can run on any node.
	// +optional
	// +mapType=atomic
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// affinity has the affinity rules of the pods. If unset, there are none.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// tolerations allow the pods to be scheduled to tainted nodes.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// hostAliases are added to the pods' hosts file.
	// +optional
	// +listType=map
	// +listMapKey=ip
	HostAliases []corev1.HostAlias `json:"hostAliases,omitempty"`

	// imagePullSecrets name Secrets with credentials for the registry, in addition to those of the image field.
	// +optional
	// +listType=map
	// +listMapKey=name
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// topologySpreadConstraints spread the pods over zones or nodes. If unset, the operator's are used; an empty list
	// removes them.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
}

// ContainerExtras has additions to the server container of a component.
type ContainerExtras struct {
	// extraArgs are added to the command line of the server, unchanged. The last value of a flag applies, so they
	// override most of the operator's flags. A server does not start with flags that it does not know.
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// extraVolumes are added to the pods.
	// +optional
	// +listType=map
	// +listMapKey=name
	ExtraVolumes []corev1.Volume `json:"extraVolumes,omitempty"`

	// extraVolumeMounts are added to the server container. Only one mount of each volume is possible.
	// +optional
	// +listType=map
	// +listMapKey=name
	ExtraVolumeMounts []corev1.VolumeMount `json:"extraVolumeMounts,omitempty"`
}
