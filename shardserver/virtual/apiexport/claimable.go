package apiexport

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
)

var (
	coreEvents  = schema.GroupResource{Resource: "events"}
	namedEvents = schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
)

// claimable are the resources that every logical cluster has by itself and that can be claimed, without an identity.
var claimable = []schema.GroupResource{
	{Resource: "configmaps"},
	coreEvents,
	{Resource: "namespaces"},
	{Resource: "resourcequotas"},
	{Resource: "secrets"},
	{Resource: "serviceaccounts"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
	{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
	{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	{Group: "authentication.k8s.io", Resource: "tokenreviews"},
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
	{Group: "coordination.k8s.io", Resource: "leases"},
	namedEvents,
	{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
	{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Resource: "roles"},
	apiBindings,
	apisv1alpha2.Resource("apiexports"),
	apisv1alpha2.Resource("apiresourceschemas"),
	corev1alpha1.Resource("logicalclusters"),
}
