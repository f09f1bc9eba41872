package kubernetes

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/approval"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/signing"
	"k8s.io/kubernetes/plugin/pkg/admission/certificates/subjectrestriction"

	"github.com/atoll-dev/atoll/shardserver/admission/rules"
)

// The plug-ins of certificate signing requests are upstream's. They call the authorizer with the context of the
// request, hence for the logical cluster of the request, and keep no state.

// NewCertificateApproval returns the plug-in CertificateApproval.
func NewCertificateApproval(config rules.Config) admission.Interface {
	plugin := approval.NewPlugin()
	plugin.SetUnconditionalAuthorizer(config.Authorizer)
	return plugin
}

// NewCertificateSigning returns the plug-in CertificateSigning.
func NewCertificateSigning(config rules.Config) admission.Interface {
	plugin := signing.NewPlugin()
	plugin.SetUnconditionalAuthorizer(config.Authorizer)
	return plugin
}

// NewCertificateSubjectRestriction returns the plug-in CertificateSubjectRestriction.
func NewCertificateSubjectRestriction(rules.Config) admission.Interface {
	return subjectrestriction.NewPlugin()
}
