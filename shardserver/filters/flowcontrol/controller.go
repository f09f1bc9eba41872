// Package flowcontrol configures the stock API Priority and Fairness for a shard: a flow is a logical cluster and not a
// user, and each user and each flow have a limited share of all seats.
//
// A shard does not serve FlowSchemas and PriorityLevelConfigurations, because they would be objects of one logical
// cluster with effects on all. Its objects are fixed.
//
// There is no state for logical clusters or users without requests in flight, and no metric label contains their names.
package flowcontrol

import (
	"context"
	"net/http"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/util/flowcontrol"
	fq "k8s.io/apiserver/pkg/util/flowcontrol/fairqueuing"
	fcmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	fcrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/informers"

	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/shardserver/usage"
)

// Reasons of apiserver_flowcontrol_rejected_requests_total for requests beyond the share of their user or flow.
const (
	reasonUserLimit = "user-limit"
	reasonFlowLimit = "flow-limit"
)

// Config configures the flow control of a shard.
type Config struct {
	// Seats is the number of seats of all priority levels together.
	Seats int
	// SeatsPerFlow is how many of them the requests of one flow may occupy, and those of one user in any number of logical
	// clusters. They run at once, so they compete for processors with the requests of others.
	SeatsPerFlow int
	// FlowOwner returns the flow of a request to the logical cluster of the context: the logical cluster, if the user may
	// access it. Others are refused later and must not occupy the queues of the logical cluster until then.
	FlowOwner func(ctx context.Context, u user.Info) string
	// MayWaitForTenant returns whether a request to one logical cluster may wait for a server of a tenant: a webhook, or a
	// mount.
	MayWaitForTenant func(ctx context.Context, info *apirequest.RequestInfo) bool
	// Origin returns whose share of seats a request uses.
	Origin func(ctx context.Context, u user.Info) string
}

// controller wraps the stock controller, which classifies by namespaces and users.
type controller struct {
	flowcontrol.Interface
	config    Config
	informers informers.SharedInformerFactory
	// users are limited before flows, so that requests which wait for their user occupy no seats of a logical cluster.
	users, flows *limiter
}

// New returns the flow control of a shard. It queues requests once it runs.
func New(config Config) flowcontrol.Interface {
	fcmetrics.Register()
	factory := newInformers()
	return &controller{
		Interface: flowcontrol.New(factory, noStatus{}, config.Seats),
		config:    config,
		informers: factory,
		users:     newLimiter(config.SeatsPerFlow, config.Seats),
		flows:     newLimiter(config.SeatsPerFlow, config.Seats),
	}
}

// Run runs the stock controller and its informers.
func (c *controller) Run(stop <-chan struct{}) error {
	c.informers.Start(stop)
	defer c.informers.Shutdown()
	return c.Interface.Run(stop)
}

// Handle executes a request when its user has seats left and its priority level has a seat for its flow.
func (c *controller) Handle(ctx context.Context, digest flowcontrol.RequestDigest,
	note func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string),
	estimate func() fcrequest.WorkEstimate, noteQueue fq.QueueNoteFn, execute func()) {
	if isExempt(ctx, digest) {
		c.Interface.Handle(ctx, digest, note, estimate, noteQueue, execute)
		return
	}
	origin := c.config.Origin(ctx, digest.User)
	target := c.levelOf(ctx, digest.RequestInfo)
	note(target.schema, target.level, "")
	work := estimate()
	classified := c.withFlow(ctx, digest, origin)
	switch {
	case target == &tenantServers:
		classified.RequestInfo.IsResourceRequest, classified.RequestInfo.Path = false, tenantServersPath
	case isUsage(ctx, digest.RequestInfo):
		classified.RequestInfo.Path = usagePath
	}
	releaseUser, ok := c.users.acquire(ctx, origin, int64(work.MaxSeats()))
	if !ok {
		fcmetrics.AddReject(ctx, target.level.Name, target.schema.Name, reasonUserLimit)
		return
	}
	defer releaseUser()
	if flow := classified.RequestInfo.Namespace; flow != "" && flow != origin {
		releaseFlow, ok := c.flows.acquire(ctx, flow, int64(work.MaxSeats()))
		if !ok {
			fcmetrics.AddReject(ctx, target.level.Name, target.schema.Name, reasonFlowLimit)
			return
		}
		defer releaseFlow()
	}
	noted := func(*flowcontrolv1.FlowSchema, *flowcontrolv1.PriorityLevelConfiguration, string) {}
	estimated := func() fcrequest.WorkEstimate { return work }
	c.Interface.Handle(ctx, classified, noted, estimated, noteQueue, execute)
}

// levelOf returns the priority level of a request that is not exempt.
func (c *controller) levelOf(ctx context.Context, info *apirequest.RequestInfo) *limited {
	cluster, ok := logicalcluster.From(ctx)
	switch {
	case !ok:
		return &inCluster
	case cluster.IsWildcard() && info.IsResourceRequest:
		return &wildcard
	case !cluster.IsWildcard() && c.config.MayWaitForTenant(ctx, info):
		return &tenantServers
	}
	return &inCluster
}

// withFlow returns a digest in which the flow of the request stands where the schemas distinguish flows: in the
// namespace, or in the user's name for requests to all logical clusters, which are cluster-scoped to the schemas.
func (c *controller) withFlow(ctx context.Context, digest flowcontrol.RequestDigest,
	origin string) flowcontrol.RequestDigest {
	info := *digest.RequestInfo
	cluster, ok := logicalcluster.From(ctx)
	switch {
	case ok && !cluster.IsWildcard():
		info.Namespace = c.config.FlowOwner(ctx, digest.User)
	case ok && info.IsResourceRequest:
		info.Namespace = ""
	default:
		info.Namespace = origin
	}
	return flowcontrol.RequestDigest{
		RequestInfo: &info,
		User:        &user.DefaultInfo{Name: origin, Groups: digest.User.GetGroups()},
	}
}

// isExempt returns whether the stock controller exempts a request: those of the shard itself and of other components of
// the installation, and probes of the process, must not wait for tenants.
func isExempt(ctx context.Context, digest flowcontrol.RequestDigest) bool {
	if slices.Contains(digest.User.GetGroups(), user.SystemPrivilegedGroup) {
		return true
	}
	info := digest.RequestInfo
	return !info.IsResourceRequest && info.Verb == "get" && !isUsage(ctx, info) && slices.ContainsFunc(probePaths, func(probe string) bool {
		return info.Path == probe || strings.HasPrefix(info.Path, probe+"/")
	})
}

// isUsage reports whether a request is for the usage of a logical cluster, which is read from etcd. It has the path of the metrics of the process.
func isUsage(ctx context.Context, info *apirequest.RequestInfo) bool {
	_, ok := logicalcluster.From(ctx)
	return ok && !info.IsResourceRequest && info.Path == usage.Path
}

// Install adds no debugging endpoints, because they would expose the names of logical clusters and users.
func (c *controller) Install(*mux.PathRecorderMux) {}

// RegisterWatch does nothing: the stock count of watches that receive a write is not by logical cluster.
func (c *controller) RegisterWatch(*http.Request) flowcontrol.ForgetWatchFunc { return func() {} }

// GetInterestedWatchCount returns 0: a write is delivered only to the few watches of its own logical cluster.
func (c *controller) GetInterestedWatchCount(*apirequest.RequestInfo) int { return 0 }
