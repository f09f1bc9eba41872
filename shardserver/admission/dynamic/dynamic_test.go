package dynamic_test

import (
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestDynamicAdmission runs its subtests against one shard; every subtest creates its own workspaces.
func TestDynamicAdmission(t *testing.T) {
	shard := shardtesting.Start(t)
	for name, test := range map[string]func(*testing.T, *shardtesting.Shard){
		"two workspaces have webhooks that never see each other's objects":     testWebhookIsolation,
		"a mutating webhook changes the object, which a validating one sees":   testMutation,
		"a webhook that was changed by a later one is called again":            testReinvocation,
		"what a webhook that fails means is its configuration's to say":        testFailurePolicies,
		"webhooks get no credentials, are not followed, and cannot go on long": testHostileWebhooks,
		"configurations of webhooks are never sent to webhooks":                testConfigurationsAreExempt,
		"selectors and conditions see the workspace of the request":            testSelectorsAndConditions,
		"a webhook sees the logical cluster on what is created":                testClusterAnnotation,
		"side effects keep a webhook from dry runs":                            testDryRun,
		"a policy with parameters and bindings":                                testParameters,
		"a policy is changed while requests run":                               testPolicyUpdatedUnderLoad,
		"a mutating policy patches and applies":                                testMutatingPolicy,
		"who writes a policy must be allowed to read its parameters":           testParamAuthorization,
		"expressions are checked against the types of the workspace":           testPolicyStatus,
		"a workspace is deleted despite its webhooks and policies":             testDeletion,
		"certificate signing requests are approved by who may":                 testCertificates,
		"policies and webhooks see custom resources":                           testCustomResources,
		"who exports an API judges its objects where they are bound":           testBoundResources,
		"equal policies compile once, and what is kept has bounds":             testBounds,
		"a workspace without configurations costs a look":                      testNoStateWithoutConfigurations,
		"a webhook that hangs holds few of the shard's own requests":           testOwnRequests,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shard)
		})
	}
}
