package admission

import "k8s.io/apimachinery/pkg/util/sets"

// upstreamPlugins are the plug-ins of Kubernetes 1.37 that do not run here. They are about pods, nodes and storage,
// which logical clusters do not have, or are replaced by a plug-in of this package, which evaluates one logical cluster
// at a time. Disabling one of them, as command lines for other servers may do, is accepted without effect.
var upstreamPlugins = sets.New(
	"AlwaysAdmit", "NamespaceAutoProvision", "NamespaceLifecycle", "NamespaceExists", "LimitPodHardAntiAffinityTopology",
	"LimitRanger", "ServiceAccount", "NodeRestriction", "TaintNodesByCondition", "AlwaysPullImages", "ImagePolicyWebhook",
	"PodSecurity", "PodNodeSelector", "Priority", "DefaultTolerationSeconds", "PodTolerationRestriction", "EventRateLimit",
	"ExtendedResourceToleration", "DefaultStorageClass", "StorageObjectInUseProtection", "PodGroupProtection",
	"OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "RuntimeClass", "ClusterTrustBundleAttest",
	"DefaultIngressClass", "DenyServiceExternalIPs", "PodTopologyLabels",
	"NodeDeclaredFeatureValidator", "PodResizeValidator",
	"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
	"ResourceQuota", "AlwaysDeny",
)
