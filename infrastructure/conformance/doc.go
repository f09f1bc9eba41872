// Package conformance is the suite that a backend passes: what tenants and platform operators rely on, whatever provides the instances.
// Authors run it on theirs from a test of their own module:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Suite{
//			Environment:   environment, // servers of kcp
//			New:           func(t testing.TB, cfg conformance.Config) backend.Backend { ... },
//			BackendConfig: `{...}`,
//			InvalidConfig: `{...}`,
//			Made:          made, // looks behind the backend
//			Words:         []string{"terraform"},
//		})
//	}
//
// The suite runs the provider in the process of the test, and stands between it and its servers: it counts writes, cuts connections, and
// has the provider die after any number of writes.
package conformance
