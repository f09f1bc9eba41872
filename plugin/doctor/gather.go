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
	progress            func(format string, args ...any)

	mu    sync.Mutex
	facts *Facts
}

// read returns the facts. The error is errNoAdmin, or the end of the context.
func (g *gatherer) read(ctx context.Context) (*Facts, error) {
	g.facts = &Facts{ReadAt: time.Now(), Installation: g.installation.Base, Areas: map[Area]*Gap{}, Credentials: credentialsOf(g.admin)}
	if g.shards == nil {
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
	g.record(func(f *Facts) { f.Proxy = &proxy })
	g.miss(AreaProxy, unread...)
	rest := []Area{AreaShards, AreaServers, AreaMoves, AreaTree, AreaExports, AreaBindings, AreaDeep}
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

func (g *gatherer) probeProxy(ctx context.Context) (Server, []Unread) {
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
		server, unread := probe{name: shard.Name, config: g.shardConfig(shard), version: "/version", metrics: true}.run(ctx)
		anonymous := rest.AnonymousClientConfig(g.shards)
		anonymous.Host = strings.TrimSuffix(shard.VirtualWorkspaceURL, "/")
		virtual, _ := probe{name: shard.Name, config: anonymous}.run(ctx)
		if isUntrusted(virtual) { // it is there: clients of providers may trust another CA
			virtual.Reachable = true
		}
		g.record(func(f *Facts) {
			f.Servers = append(f.Servers, server)
			f.Shards[i].VirtualWorkspaces = &virtual
		})
		if !server.Reachable {
			unread = append(unread, Unread{What: "shard " + shard.Name + ", which does not answer"})
		}
		g.miss(AreaServers, unread...)
	})
}

// isUntrusted reports whether a server has presented a certificate that is valid now, and that this client does not trust.
func isUntrusted(server Server) bool {
	return !server.Reachable && server.Certificate != nil && server.Certificate.NotAfter.After(time.Now())
}

func (g *gatherer) shardConfig(shard Shard) *rest.Config {
	config := rest.CopyConfig(g.shards)
	config.Host, config.APIPath = strings.TrimSuffix(shard.BaseURL, "/"), ""
	config.QPS = -1
	return config
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
