package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	migrationv1alpha1 "github.com/atoll-dev/atoll/api/migration/v1alpha1"
	"github.com/atoll-dev/atoll/internal/moves"
	"github.com/atoll-dev/atoll/logicalcluster"
	"github.com/atoll-dev/atoll/plugin/connection"
)

var (
	shardsResource    = corev1alpha1.SchemeGroupVersion.WithResource("shards")
	movesResource     = migrationv1alpha1.SchemeGroupVersion.WithResource("logicalclustermigrations")
	slicesResource    = connection.APIResourceSchemas.GroupVersion().WithResource("apiexportendpointslices")
	errNoAdmin        = errors.New("the checks need an administrator of the installation (group system:kcp:admin)")
	concurrentServers = 8
)

// gatherer reads the facts. Each request has a deadline, lists are paged, and what cannot be read is a gap.
type gatherer struct {
	installation *connection.Installation
	// admin is the configuration of the installation, shards that of its shards, host that of the host cluster. The last two may be nil.
	admin, shards, host *rest.Config
	hostNamespace       string
	deep                bool
	maxWorkspaces       int
	grace               time.Duration
	progress            func(format string, args ...any)
	// identities are those of all exports, for the comparison with bindings.
	identities exportIdentities

	mu    sync.Mutex
	facts *Facts
}

// read returns the facts. The error is errNoAdmin, or the end of the context.
func (g *gatherer) read(ctx context.Context) (*Facts, error) {
	g.facts = &Facts{ReadAt: time.Now(), Installation: g.installation.Base, Areas: map[Area]*Gap{}, Credentials: credentialsOf(g.admin)}
	if g.shards != nil {
		g.facts.ShardCredentials = credentialsOf(g.shards)
	} else {
		g.skip(AreaServers, "--shards-kubeconfig is not set, so shards are not asked directly", nil)
	}
	if !g.deep {
		g.skip(AreaDeep, "--deep is not set", nil)
	}
	if g.host == nil {
		g.skip(AreaHost, "neither --host-kubeconfig nor --host-context is set", nil)
	}
	var all sync.WaitGroup
	if g.host != nil {
		all.Go(func() { g.readHost(ctx) })
	}
	err := g.readInstallation(ctx)
	all.Wait()
	if err == nil && ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = ctx.Err()
	}
	g.facts.sort()
	return g.facts, err
}

func (g *gatherer) readInstallation(ctx context.Context) error {
	g.progress("Asking the front proxy %s", g.installation.Base)
	proxy, unread := g.probeProxy(ctx)
	g.record(func(f *Facts) { f.Proxy = proxy })
	g.miss(AreaProxy, unread...)
	rest := []Area{AreaShards, AreaServers, AreaMoves, AreaTree, AreaExports, AreaBindings, AreaDeep}
	if proxy == nil {
		for _, area := range rest {
			g.skip(area, "the front proxy has not answered when --timeout ended", nil)
		}
		return nil
	}
	if !proxy.Reachable {
		g.miss(AreaProxy, Unread{What: "the front proxy, which does not answer"})
		for _, area := range rest {
			g.skip(area, "the front proxy does not answer", nil)
		}
		return nil
	}
	if err := g.readShards(ctx); err != nil {
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) && !g.hasExpired() {
			return fmt.Errorf("%w: %w", errNoAdmin, err)
		}
		if !apierrors.IsUnauthorized(err) && ctx.Err() == nil {
			g.record(func(f *Facts) { f.ShardsUnreadable, f.ShardsError = true, err.Error() })
		}
		for _, area := range rest {
			g.skip(area, "the shards of the installation cannot be read", err)
		}
		return nil
	}
	g.readMoves(ctx)
	g.probeShards(ctx)
	if g.shards == nil {
		g.readFromRoot(ctx)
		return nil
	}
	g.readFromShards(ctx)
	return nil
}

func (g *gatherer) hasExpired() bool {
	return g.facts.Credentials != nil && g.facts.Credentials.NotAfter.Before(g.facts.ReadAt)
}

func (g *gatherer) probeProxy(ctx context.Context) (*Server, []Unread) {
	config := rest.CopyConfig(g.admin)
	config.Host = g.installation.Base
	return probe{name: "front proxy", config: config, metrics: true}.run(ctx)
}

func (g *gatherer) readShards(ctx context.Context) error {
	client, err := g.installation.AdminClient()
	if err != nil {
		return err
	}
	return each(ctx, client.Resource(shardsResource), "", func(object *unstructured.Unstructured) error {
		shard, err := shardOf(object)
		if err == nil {
			g.record(func(f *Facts) { f.Shards = append(f.Shards, shard) })
		}
		return err
	})
}

// readMoves reads the migrations in root. An installation that does not move workspaces has none.
func (g *gatherer) readMoves(ctx context.Context) {
	client, err := g.installation.Client(logicalcluster.Root.Path())
	if err == nil {
		err = each(ctx, client.Resource(movesResource), "", func(object *unstructured.Unstructured) error {
			migration, err := moves.Decode(object)
			if err != nil || !moves.IsRunning(migration) {
				return err
			}
			move, err := moveOf(object)
			g.record(func(f *Facts) { f.Moves = append(f.Moves, move) })
			return err
		})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		g.skip(AreaMoves, "the migrations in root cannot be read", err)
	}
}

// probeShards asks each shard, and anonymously what serves its virtual workspaces: credentials go to the shards only.
func (g *gatherer) probeShards(ctx context.Context) {
	if g.shards == nil {
		return
	}
	g.progress("Asking %d shards", len(g.facts.Shards))
	g.limited(len(g.facts.Shards), func(i int) {
		shard := g.facts.Shards[i]
		g.probeShard(ctx, shard)
		anonymous := rest.AnonymousClientConfig(g.shards)
		setHost(anonymous, shard.VirtualWorkspaceURL)
		virtual, unread := probe{name: "the virtual workspaces of shard " + shard.Name, config: anonymous}.run(ctx)
		if virtual == nil {
			g.miss(AreaServers, unread...)
			return
		}
		if virtual.untrusted { // it is there: clients of providers may trust another CA
			virtual.Reachable = true
		}
		g.record(func(f *Facts) { f.Shards[i].VirtualWorkspaces = virtual })
	})
	g.missLag()
}

func (g *gatherer) probeShard(ctx context.Context, shard Shard) {
	config, err := g.shardConfig(shard)
	if err != nil {
		g.miss(AreaServers, Unread{What: "shard " + shard.Name + ": " + err.Error()})
		return
	}
	server, unread := probe{name: shard.Name, config: config, version: "/version", metrics: true}.run(ctx)
	if server != nil {
		g.record(func(f *Facts) { f.Servers = append(f.Servers, *server) })
		if !server.Reachable {
			unread = append(unread, Unread{What: "shard " + shard.Name + ", which does not answer"})
		}
	}
	g.miss(AreaServers, unread...)
}

// missLag records the shards without a lag of replication: only the leader of a shard's replicas has it, and one replica is asked.
func (g *gatherer) missLag() {
	for _, server := range g.facts.Servers {
		if server.Metrics != nil && len(g.facts.Shards) > 1 && len(server.Metrics[metricReplicationLag]) == 0 {
			g.miss(AreaReplication, Unread{What: "the lag of shard " + server.Name + ", which only the leader of its replicas reports"})
		}
	}
}

// errNotHTTPS is a refusal to send the credentials.
var errNotHTTPS = errors.New("its address is not one of https, so it gets no credentials")

func (g *gatherer) shardConfig(shard Shard) (*rest.Config, error) {
	config := rest.CopyConfig(g.shards)
	setHost(config, shard.BaseURL)
	config.APIPath, config.QPS = "", -1
	if !strings.HasPrefix(config.Host, "https://") {
		return nil, errNotHTTPS
	}
	return config, nil
}

// setHost sets the address of another server. The name in the kubeconfig that its certificate must have holds for the server there.
func setHost(config *rest.Config, address string) {
	address = strings.TrimSuffix(address, "/")
	if address != strings.TrimSuffix(config.Host, "/") {
		config.ServerName = ""
	}
	config.Host = address
}

// limited calls do for each number below n, some at a time.
func (g *gatherer) limited(n int, do func(int)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, concurrentServers)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i)
		})
	}
	all.Wait()
}

func (g *gatherer) record(change func(*Facts)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g.facts)
}

func (g *gatherer) gap(area Area) *Gap {
	if g.facts.Areas[area] == nil {
		g.facts.Areas[area] = &Gap{}
	}
	return g.facts.Areas[area]
}

// skip records that nothing of an area is read. The first reason counts.
func (g *gatherer) skip(area Area, why string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gap := g.gap(area)
	if gap.Skipped != "" {
		return
	}
	gap.Skipped = why
	if err != nil {
		gap.Reason = err.Error()
	}
}

func (g *gatherer) miss(area Area, unread ...Unread) {
	if len(unread) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	gap := g.gap(area)
	gap.Unread = append(gap.Unread, unread...)
}

// each calls do with all objects of a resource that a selector of labels selects, page by page.
func each(ctx context.Context, resource dynamic.ResourceInterface, selector string, do func(*unstructured.Unstructured) error) error {
	options := metav1.ListOptions{LabelSelector: selector, Limit: 500}
	for {
		page, err := listPage(ctx, resource, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			if err := do(&page.Items[i]); err != nil {
				return err
			}
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func listPage(ctx context.Context, resource dynamic.ResourceInterface, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return resource.List(ctx, options)
}

// credentialsOf returns the validity of a client certificate.
func credentialsOf(config *rest.Config) *Certificate {
	config = rest.CopyConfig(config)
	if rest.LoadTLSFiles(config) != nil || len(config.CertData) == 0 {
		return nil
	}
	if _, err := tls.X509KeyPair(config.CertData, config.KeyData); err != nil {
		return nil
	}
	certificates, err := cert.ParseCertsPEM(config.CertData)
	if err != nil || len(certificates) == 0 {
		return nil
	}
	return validityOf(certificates[0])
}

// sort gives the facts an order that does not depend on which server was faster.
func (f *Facts) sort() {
	slices.SortFunc(f.Shards, func(a, b Shard) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Servers, func(a, b Server) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(f.Workspaces, func(a, b Workspace) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(f.LogicalClusters, func(a, b LogicalCluster) int { return strings.Compare(a.Cluster, b.Cluster) })
	slices.SortFunc(f.Exports, func(a, b Export) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(f.Slices, func(a, b EndpointSlice) int { return strings.Compare(a.String(), b.String()) })
	slices.SortFunc(f.Bindings, func(a, b Binding) int { return strings.Compare(a.String(), b.String()) })
	for _, gap := range f.Areas {
		slices.SortFunc(gap.Unread, func(a, b Unread) int { return strings.Compare(a.What, b.What) })
	}
}
