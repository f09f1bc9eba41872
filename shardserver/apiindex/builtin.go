package apiindex

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// builtInResources are the resources of Kubernetes and kcp that every logical cluster serves. Claims on them carry no
// identity hash.
var builtInResources = sets.New(
	schema.GroupResource{Resource: "configmaps"},
	schema.GroupResource{Resource: "events"},
	schema.GroupResource{Resource: "namespaces"},
	schema.GroupResource{Resource: "resourcequotas"},
	schema.GroupResource{Resource: "secrets"},
	schema.GroupResource{Resource: "serviceaccounts"},
	schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"},
	schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"},
	schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"},
	schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"},
	schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"},
	schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingwebhookconfigurations"},
	schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"},
	schema.GroupResource{Group: "authentication.k8s.io", Resource: "tokenreviews"},
	schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"},
	schema.GroupResource{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"},
	schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
	schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"},
	schema.GroupResource{Group: "core.kcp.io", Resource: "logicalclusters"},
	schema.GroupResource{Group: "events.k8s.io", Resource: "events"},
	schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"},
	schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
	schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"},
	schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "roles"},
)

// NeedsIdentity reports whether a claim on a resource must carry an identity hash, because several exports may offer a
// resource of that name. Built-in resources need none.
func NeedsIdentity(resource schema.GroupResource) bool {
	return !builtInResources.Has(resource) && resource.Group != exports.Group
}
