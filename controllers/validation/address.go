package validation

import (
	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
)

// Address validates the address of a component. The rules of the schema do not apply to objects that are older than the rules.
func Address(external operatorv1alpha1.ExternalConfig) status.Result {
	const port = "external.%s is %d: set a port from 1 to 65535"
	var mistakes []status.Result
	if external.Hostname == "" {
		mistakes = append(mistakes, status.Stall(specHonored, "InvalidSpec", "external.hostname is empty: set the DNS name or IP address that clients connect to"))
	}
	if !IsPort(external.Port) {
		mistakes = append(mistakes, status.Stall(specHonored, "InvalidSpec", port, "port", external.Port))
	}
	if private := external.PrivatePort; private != nil && !IsPort(*private) {
		mistakes = append(mistakes, status.Stall(specHonored, "InvalidSpec", port, "privatePort", *private))
	}
	return status.Join(mistakes...)
}

// IsPort reports whether a server can listen on a port.
func IsPort(port int32) bool { return port >= 1 && port <= 65535 }
