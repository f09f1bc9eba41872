package frontproxy

import (
	"net"
	"slices"
	"strconv"
	"strings"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcd"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/controllers/validation"
)

// validateSpec rejects invalid specs, and reports the ignored fields of valid ones.
func validateSpec(front *operatorv1alpha1.FrontProxy, root *operatorv1alpha1.RootShard) status.Result {
	if mistakes := status.Join(validateName(front, root), validateAddresses(front), validation.SharedIndex("sharedIndex", front.Spec.SharedIndex)); mistakes.Type != "" {
		return mistakes
	}
	return status.SpecHonored(append(ignoredFields(front), validation.IgnoredSharedIndex(root, "sharedIndex", front.Spec.SharedIndex)...))
}

func validateName(front *operatorv1alpha1.FrontProxy, root *operatorv1alpha1.RootShard) status.Result {
	const condition = operatorv1alpha1.ConditionSpecHonored
	const longest = "-dynamic-kubeconfig" // names of volumes are at most 63 characters
	if front.Name == "proxy" {
		return status.Stall(condition, "NameTaken", "the certificates of a FrontProxy named proxy have the names of those of the RootShard's internal proxy: recreate it under another name")
	}
	if front.Name == "etcd" && etcd.IsManaged(root.Spec.Etcd) {
		return status.Stall(condition, "NameTaken", "the certificates of a FrontProxy named etcd have the names of those of the RootShard's etcd: recreate it under another name")
	}
	if strings.Contains(front.Name, ".") {
		return status.Stall(condition, "InvalidName", "the name contains a dot, and names of Services made from it must not: recreate the FrontProxy under a name without dots")
	}
	if length, limit := len(root.Name)+1+len(front.Name), 63-len(longest); length > limit {
		return status.Stall(condition, "InvalidName", "the names of RootShard and FrontProxy have %d characters together and may have %d: recreate the FrontProxy under a shorter name", length-1, limit-1)
	}
	return status.Result{}
}

func validateAddresses(front *operatorv1alpha1.FrontProxy) status.Result {
	var address, hostname status.Result
	if external := front.Spec.External; external != nil && external.Hostname != "" {
		address = validation.Address(*external)
	}
	if _, port, err := net.SplitHostPort(front.Spec.ExternalHostname); err == nil {
		if number, err := strconv.ParseInt(port, 10, 32); err != nil || !validation.IsPort(int32(number)) {
			hostname = status.Stall(operatorv1alpha1.ConditionSpecHonored, "InvalidSpec", "externalHostname is %q, and its port must be from 1 to 65535: correct it, or set external", front.Spec.ExternalHostname)
		}
	}
	return status.Join(address, hostname)
}

// ignoredFields returns the fields of a FrontProxy that have no effect.
func ignoredFields(front *operatorv1alpha1.FrontProxy) []status.IgnoredField {
	out := status.IgnoredAuthFields(front.Spec.Auth)
	if external := front.Spec.External; external != nil && (external.PrivateHostname != "" || external.PrivatePort != nil) {
		out = append(out, status.IgnoredField{Field: "external.privateHostname", Advice: "shards take the private address from the RootShard; set it there"})
	}
	if auth := front.Spec.Auth; auth != nil {
		const advice = "shards do not accept " + status.SystemMasters + " from a proxy; use a Kubeconfig that targets the RootShard where it is needed"
		if auth.DropGroups != nil && !desired.MatchesGroup(auth.DropGroups, status.SystemMasters) {
			out = append(out, status.IgnoredField{Field: "auth.dropGroups without " + status.SystemMasters, Advice: advice})
		}
		if slices.Contains(auth.PassOnGroups, status.SystemMasters) {
			out = append(out, status.IgnoredField{Field: "auth.passOnGroups with " + status.SystemMasters, Advice: advice})
		}
	}
	return append(out, status.UnknownTemplateKeys("certificateTemplates", front.Spec.CertificateTemplates, pki.ProxyTemplateKeys())...)
}
