package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
)

// ImageSpec selects the container image of a component.
type ImageSpec struct {
	// repository is the image's name with its registry and without a tag. By default, the operator's own default is
	// used.
	// +optional
	Repository string `json:"repository,omitempty"`

	// tag is the image's tag. By default, it is the version of the operator.
	// +optional
	Tag string `json:"tag,omitempty"`

	// imagePullSecrets name Secrets with credentials for the registry.
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// LoggingSpec configures the log verbosity of a component.
type LoggingSpec struct {
	// level is the verbosity from 0 (quiet) to 10 (everything, including request bodies).
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	Level int `json:"level,omitempty"`
}

// ExternalConfig is the address under which clients outside the cluster reach a component. A FrontProxy may have an empty
// one, as clients of kcp-operator send it, with the port 0.
// +kubebuilder:validation:XValidation:rule="size(self.hostname) == 0 || (self.port >= 1 && self.port <= 65535)",fieldPath=".port",message="must be from 1 to 65535"
// +kubebuilder:validation:XValidation:rule="!has(self.privatePort) || (self.privatePort >= 1 && self.privatePort <= 65535)",fieldPath=".privatePort",message="must be from 1 to 65535"
type ExternalConfig struct {
	// hostname is the DNS name or IP address clients connect to.
	// +required
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') && !self.matches('^[^:]*:[0-9]+$')",message="hostname is a DNS name or an IP address, without scheme, port and path"
	Hostname string `json:"hostname"`

	// port is the TCP port clients connect to, from 1 to 65535.
	// +required
	Port int32 `json:"port"`

	// privateHostname is the name under which shards reach the front proxy, if it differs from hostname.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!self.contains('/') && !self.matches('^[^:]*:[0-9]+$')",message="privateHostname is a DNS name or an IP address, without scheme, port and path"
	PrivateHostname string `json:"privateHostname,omitempty"`

	// privatePort is the port for privateHostname. Defaults to port.
	// +optional
	PrivatePort *int32 `json:"privatePort,omitempty"`
}

// ServiceTemplate changes the Service that the operator creates for a component.
type ServiceTemplate struct {
	// metadata is added to the Service.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// spec sets fields of the Service.
	// +optional
	Spec *ServiceSpecTemplate `json:"spec,omitempty"`
}

// ServiceSpecTemplate holds the configurable fields of a Service.
type ServiceSpecTemplate struct {
	// type is ClusterIP, NodePort or LoadBalancer. By default, it is ClusterIP.
	// +optional
	Type corev1.ServiceType `json:"type,omitempty"`

	// clusterIP is a fixed cluster address. It cannot be changed once the Service exists.
	// +optional
	ClusterIP string `json:"clusterIP,omitempty"`
}

// DeploymentTemplate changes the Deployment that the operator creates for a component.
type DeploymentTemplate struct {
	// metadata is added to the Deployment.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// spec changes the Deployment's pods.
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
	// metadata is added to every pod.
	// +optional
	Metadata *TemplateMetadata `json:"metadata,omitempty"`

	// spec sets fields of every pod.
	// +optional
	Spec *PodSpecTemplate `json:"spec,omitempty"`
}

// PodSpecTemplate holds the configurable fields of a pod. If a field is unset, the operator's value is used.
type PodSpecTemplate struct {
	// nodeSelector restricts the pods to nodes with these labels.
	// +optional
	// +mapType=atomic
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// affinity holds scheduling constraints.
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

	// topologySpreadConstraints spread pods over zones or nodes.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
}

// ContainerExtras are additions to the server container of a component.
type ContainerExtras struct {
	// extraArgs are added to the server's command line as they are.
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// extraVolumes are added to the pods.
	// +optional
	// +listType=map
	// +listMapKey=name
	ExtraVolumes []corev1.Volume `json:"extraVolumes,omitempty"`

	// extraVolumeMounts are added to the server container. Each volume can be mounted once.
	// +optional
	// +listType=map
	// +listMapKey=name
	ExtraVolumeMounts []corev1.VolumeMount `json:"extraVolumeMounts,omitempty"`
}
