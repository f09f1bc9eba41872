package flowcontrol

import (
	"context"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	applyv1 "k8s.io/client-go/applyconfigurations/flowcontrol/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	flowcontrolclient "k8s.io/client-go/kubernetes/typed/flowcontrol/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// probePaths are non-resource paths that are exempt, with all paths below them.
var probePaths = []string{"/healthz", "/livez", "/readyz", "/metrics"}

// limited is a priority level with seats, and the schema of the requests that need them.
type limited struct {
	level  *flowcontrolv1.PriorityLevelConfiguration
	schema *flowcontrolv1.FlowSchema
}

// In the digests that the stock controller receives, requests to one logical cluster are in the namespace that is their
// flow, and requests to all logical clusters are cluster-scoped.
var (
	inCluster = newLimited("logical-clusters", 50, flowcontrolv1.FlowDistinguisherMethodByNamespaceType, rules{
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{resourceRule(flowcontrolv1.NamespaceEvery)},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{
			Verbs: []string{flowcontrolv1.VerbAll}, NonResourceURLs: []string{flowcontrolv1.NonResourceAll},
		}},
	})
	tenantServers = newTenantServers()
	wildcard      = newLimited("wildcard", 25, flowcontrolv1.FlowDistinguisherMethodByUserType, rules{
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{resourceRule()},
	})
)

// tenantServersPath is the path of requests that may wait for a server of a tenant, in the digests that the stock controller
// receives.
const tenantServersPath = "/tenant-servers"

// usagePath is the path of requests for the usage of a logical cluster in these digests, where its own path is that of a probe.
const usagePath = "/usage"

// newTenantServers returns the level of requests that may wait for a server of a tenant. It borrows no seats: those of the
// other levels remain for other requests however long such servers take.
func newTenantServers() limited {
	l := newLimited("tenant-servers", 20, flowcontrolv1.FlowDistinguisherMethodByNamespaceType, rules{
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{
			Verbs: []string{flowcontrolv1.VerbAll}, NonResourceURLs: []string{tenantServersPath},
		}},
	})
	l.schema.Spec.MatchingPrecedence = 900
	l.level.Spec.Limited.BorrowingLimitPercent = ptr.To[int32](0)
	return l
}

type rules = flowcontrolv1.PolicyRulesWithSubjects

// resourceRule matches all requests for resources in the namespaces, or cluster-scoped ones if there are none.
func resourceRule(namespaces ...string) flowcontrolv1.ResourcePolicyRule {
	return flowcontrolv1.ResourcePolicyRule{
		Verbs:        []string{flowcontrolv1.VerbAll},
		APIGroups:    []string{flowcontrolv1.APIGroupAll},
		Resources:    []string{flowcontrolv1.ResourceAll},
		Namespaces:   namespaces,
		ClusterScope: len(namespaces) == 0,
	}
}

// newLimited returns a level with the queues of upstream's levels for workloads. Levels lend half of their seats to
// each other while they do not need them.
func newLimited(name string, shares int32, flow flowcontrolv1.FlowDistinguisherMethodType, rule rules) limited {
	return limited{
		level: &flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: newMeta(name),
			Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
				Type: flowcontrolv1.PriorityLevelEnablementLimited,
				Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
					NominalConcurrencyShares: ptr.To(shares),
					LendablePercent:          ptr.To[int32](50),
					LimitResponse: flowcontrolv1.LimitResponse{
						Type:    flowcontrolv1.LimitResponseTypeQueue,
						Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 128, HandSize: 6, QueueLengthLimit: 50},
					},
				},
			},
		},
		schema: newSchema(name, name, 1000, &flowcontrolv1.FlowDistinguisherMethod{Type: flow}, rule),
	}
}

// newSchema returns a schema for requests of all users.
func newSchema(name, level string, precedence int32, flow *flowcontrolv1.FlowDistinguisherMethod,
	rule rules) *flowcontrolv1.FlowSchema {
	everybody := &flowcontrolv1.GroupSubject{Name: flowcontrolv1.NameAll}
	rule.Subjects = []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindGroup, Group: everybody}}
	return &flowcontrolv1.FlowSchema{
		ObjectMeta: newMeta(name),
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			DistinguisherMethod:        flow,
			Rules:                      []rules{rule},
		},
	}
}

// newMeta sets a UID too, which responses carry in headers.
func newMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"}
}

func levels() *flowcontrolv1.PriorityLevelConfigurationList {
	list := &flowcontrolv1.PriorityLevelConfigurationList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	mandatory := slices.Clone(bootstrap.MandatoryPriorityLevelConfigurations)
	for _, level := range append(mandatory, inCluster.level, tenantServers.level, wildcard.level) {
		list.Items = append(list.Items, *level)
	}
	return list
}

func schemas() *flowcontrolv1.FlowSchemaList {
	probes := newSchema("probes", flowcontrolv1.PriorityLevelConfigurationNameExempt, 2, nil, rules{
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"get"}, NonResourceURLs: probePaths}},
	})
	list := &flowcontrolv1.FlowSchemaList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	mandatory := slices.Clone(bootstrap.MandatoryFlowSchemas)
	for _, schema := range append(mandatory, probes, inCluster.schema, tenantServers.schema, wildcard.schema) {
		list.Items = append(list.Items, *schema)
	}
	return list
}

// newInformers returns informers of the fixed objects.
func newInformers() informers.SharedInformerFactory {
	factory := informers.NewSharedInformerFactory(nil, 0)
	for _, fixed := range []struct {
		kind runtime.Object
		list runtime.Object
	}{{&flowcontrolv1.FlowSchema{}, schemas()}, {&flowcontrolv1.PriorityLevelConfiguration{}, levels()}} {
		factory.InformerFor(fixed.kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(fixedList{fixed.list}, fixed.kind, 0, cache.Indexers{})
		})
	}
	return factory
}

// fixedList lists objects that never change.
type fixedList struct{ list runtime.Object }

// List implements cache.ListerWatcher.
func (f fixedList) List(metav1.ListOptions) (runtime.Object, error) { return f.list, nil }

// Watch implements cache.ListerWatcher.
func (f fixedList) Watch(metav1.ListOptions) (watch.Interface, error) {
	return watch.NewProxyWatcher(make(chan watch.Event)), nil
}

// IsWatchListSemanticsUnSupported makes the reflector list.
func (f fixedList) IsWatchListSemanticsUnSupported() bool { return true }

// noStatus discards the status of schemas, which is the only thing that the stock controller writes.
type noStatus struct {
	flowcontrolclient.FlowcontrolV1Interface
}

// FlowSchemas implements flowcontrolclient.FlowSchemasGetter.
func (noStatus) FlowSchemas() flowcontrolclient.FlowSchemaInterface { return noSchemaStatus{} }

type noSchemaStatus struct {
	flowcontrolclient.FlowSchemaInterface
}

// ApplyStatus implements flowcontrolclient.FlowSchemaInterface.
func (noSchemaStatus) ApplyStatus(context.Context, *applyv1.FlowSchemaApplyConfiguration,
	metav1.ApplyOptions) (*flowcontrolv1.FlowSchema, error) {
	return nil, nil // the caller ignores the object
}
