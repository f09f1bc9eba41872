// Package backendtest is a test suite for backends: it tests what tenants and platform operators rely on, regardless of the backend. Authors
// run it on their backend from a test of their own module:
//
//	func TestBackend(t *testing.T) {
//		backendtest.Run(t, backendtest.Suite{
//			Environment:   environment, // servers of kcp
//			New:           func(t testing.TB, cfg backendtest.Config) backend.Backend { ... },
//			BackendConfig: `{...}`,
//			InvalidConfig: `{...}`,
//			Made:          made, // inspects the objects of the backend
//			Words:         []string{"terraform"},
//		})
//	}
//
// The suite runs the provider in the process of the test, and intercepts requests to its servers: it counts writes, cuts connections, and
// crashes the provider after any number of writes.
package backendtest
