package admission

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"
)

// The plug-ins of certificate signing requests are upstream's. They call the authorizer with the context of the
// request, hence for the logical cluster of the request, and keep no state.

func newCertificateApproval(config Config) admission.Interface {
	plugin := approval.NewPlugin()
	plugin.SetUnconditionalAuthorizer(config.Authorizer)
	return plugin
}

func newCertificateSigning(config Config) admission.Interface {
	plugin := signing.NewPlugin()
	plugin.SetUnconditionalAuthorizer(config.Authorizer)
	return plugin
}

func newCertificateSubjectRestriction(Config) admission.Interface {
	return subjectrestriction.NewPlugin()
}
