package dynamic_test

import (
	"testing"

	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestDynamicAdmission runs its subtests against one shard; every subtest creates its own workspaces.
func TestDynamicAdmission(t *testing.T) {
	shard := shardtesting.Start(t)
	for name, test := range map[string]func(*testing.T, *shardtesting.Shard){
		"webhooks see only objects of their workspace":                    testWebhookIsolation,
		"validating webhook sees the mutated object":                      testMutation,
		"webhook is reinvoked after a later mutation":                     testReinvocation,
		"failure policies":                                                testFailurePolicies,
		"webhooks get no credentials, no redirects and bounded responses": testHostileWebhooks,
		"webhook configurations are exempt from webhooks":                 testConfigurationsAreExempt,
		"selectors and conditions use the workspace of the request":       testSelectorsAndConditions,
		"webhook sees the logical cluster annotation of new objects":      testClusterAnnotation,
		"webhooks with side effects are not called for dry runs":          testDryRun,
		"policy with parameters and bindings":                             testParameters,
		"policy is updated during requests":                               testPolicyUpdatedUnderLoad,
		"mutating policy patches and applies":                             testMutatingPolicy,
		"author of a policy needs permission to read its parameters":      testParamAuthorization,
		"expressions are checked against the types of the workspace":      testPolicyStatus,
		"workspace is deleted despite its webhooks and policies":          testDeletion,
		"certificate signing requests are approved with permission":       testCertificates,
		"policies and webhooks apply to custom resources":                 testCustomResources,
		"webhooks and policies of the provider apply to bound resources":  testBoundResources,
		"mutating policies of the provider apply to bound resources":      testBoundMutations,
		"equal policies compile once, and caches are bounded":             testBounds,
		"no state without configurations":                                 testNoStateWithoutConfigurations,
		"expressions that exceed their cost limit are suspended":          testSuspension,
		"hanging webhook blocks few of the shard's own requests":          testOwnRequests,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shard)
		})
	}
}
