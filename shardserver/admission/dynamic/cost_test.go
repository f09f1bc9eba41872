package dynamic

import (
	"fmt"
	"runtime"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
)

// The benchmarks measure what is cached; docs/performance-decisions.md has the figures.

func BenchmarkPreparedWebhooks(b *testing.B) {
	url := "https://webhook.example.com"
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	configuration := &admissionregistration.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Webhooks: []admissionregistration.ValidatingWebhook{{
			Name: "bench.example.com", ClientConfig: admissionregistration.WebhookClientConfig{URL: &url},
			MatchConditions: []admissionregistration.MatchCondition{{Name: "named", Expression: `object.metadata.name != "x"`}},
		}},
	}
	heapPerValue(b, func(i int) any {
		differs := configuration.DeepCopy()
		differs.Webhooks[0].MatchConditions[0].Expression = fmt.Sprintf(`object.metadata.name != "x%d"`, i)
		declared, err := validatingWebhooksOf(differs)
		if err != nil {
			b.Fatal(err)
		}
		accessor := declared[0].accessor("bench")
		accessor.GetCompiledMatcher(compiler)
		return accessor
	})
}

func BenchmarkCompiledPolicy(b *testing.B) {
	for name, variables := range map[string][]admissionregistrationv1.Variable{
		"plain":          nil,
		"with variables": {{Name: "name", Expression: `object.metadata.name`}},
	} {
		b.Run(name, func(b *testing.B) {
			compilers := newCompilers()
			heapPerValue(b, func(i int) any {
				return compilers.compileValidating(&validating.Policy{
					ObjectMeta: metav1.ObjectMeta{Name: "bench"},
					Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
						Variables:   variables,
						Validations: []admissionregistrationv1.Validation{{Expression: fmt.Sprintf(`object.metadata.name != "x%d"`, i), MessageExpression: `"not " + object.metadata.name`}},
					},
				})
			})
		})
	}
}

// heapPerValue reports the heap size of one of many values.
func heapPerValue(b *testing.B, value func(int) any) {
	value(-1) // allocates what all values share
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var kept []any
	for b.Loop() {
		kept = append(kept, value(len(kept)))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(kept)), "heap-B/value")
	runtime.KeepAlive(kept)
}
