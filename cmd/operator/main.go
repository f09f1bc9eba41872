// Command operator runs kcp installations as described by RootShards, Shards, FrontProxies and related kinds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/apply"
	"github.com/atoll-dev/atoll/controllers/backup"
	"github.com/atoll-dev/atoll/controllers/backupschedule"
	"github.com/atoll-dev/atoll/controllers/backupstore"
	"github.com/atoll-dev/atoll/controllers/cacheserver"
	"github.com/atoll-dev/atoll/controllers/certificatesecret"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/etcdclient"
	"github.com/atoll-dev/atoll/controllers/frontproxy"
	"github.com/atoll-dev/atoll/controllers/gate"
	"github.com/atoll-dev/atoll/controllers/kubeconfig"
	"github.com/atoll-dev/atoll/controllers/metrics"
	"github.com/atoll-dev/atoll/controllers/reconcile"
	"github.com/atoll-dev/atoll/controllers/restore"
	"github.com/atoll-dev/atoll/controllers/restoredrill"
	"github.com/atoll-dev/atoll/controllers/shard"
	"github.com/atoll-dev/atoll/controllers/shardclient"
	"github.com/atoll-dev/atoll/controllers/virtualworkspace"
	"github.com/atoll-dev/atoll/internal/gomemlimit"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "operator:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	o, image, err := parseFlags(args)
	if err != nil {
		return err
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.zap)))
	gomemlimit.Set()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, certmanagerv1.AddToScheme, operatorv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering types: %w", err)
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster: %w", err)
	}
	// An installation has some sixty objects; the default of 20 requests a second would delay its start.
	config.QPS, config.Burst = 100, 200
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                o.metricsOptions(),
		HealthProbeBindAddress: o.probeAddress,
		LeaderElection:         o.leaderElect,
		LeaderElectionID:       operatorv1alpha1.LeaseName,
		// The process ends with the manager, so the next leader need not wait for the lease to expire.
		LeaderElectionReleaseOnCancel: true,
		// Secrets and ConfigMaps of the whole cluster are not cached: they are read when needed, and watched by
		// metadata. Pods are read only while some of a workload are not ready, and NetworkPolicies only while a drill begins.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &corev1.PersistentVolumeClaim{}, &corev1.Pod{}, &corev1.Namespace{}, &batchv1.Job{}, &networkingv1.NetworkPolicy{}}}},
		// Of the Jobs of the cluster, only those of Backups and Restores are watched.
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&batchv1.Job{}: {Label: labels.SelectorFromSet(labels.Set{"app.kubernetes.io/component": desired.ComponentBackup})}}},
	})
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	if err := requireCertManager(mgr.GetRESTMapper()); err != nil {
		return err
	}
	if err := addControllers(mgr, image, o.argoCD, o.drillNamespace); err != nil {
		return err
	}
	if err := errors.Join(mgr.AddHealthzCheck("healthz", healthz.Ping), mgr.AddReadyzCheck("readyz", healthz.Ping)); err != nil {
		return fmt.Errorf("setting up probes: %w", err)
	}
	ctrl.Log.Info("Starting", "defaultImage", image.String())
	return mgr.Start(ctrl.SetupSignalHandler())
}

func addControllers(mgr ctrl.Manager, image desired.Image, argoCDNamespace, drillNamespace string) error {
	clusterID, err := readClusterID(mgr.GetAPIReader())
	if err != nil {
		return err
	}
	cluster := apply.Cluster{Client: mgr.GetClient()}
	clients := shardclient.New(cluster)
	config := reconcile.Config{
		LookupHost: net.DefaultResolver.LookupHost, Live: mgr.GetAPIReader(),
		Cluster: cluster, Recorder: mgr.GetEventRecorder("atoll-operator"), Gate: gate.New(cluster, clients, time.Now), Image: image, Etcd: etcdclient.Client{}, ClusterID: clusterID, ArgoCDNamespace: argoCDNamespace, Now: time.Now,
	}
	reconciliations := metrics.NewReconciliations()
	for _, collector := range []prometheus.Collector{reconciliations, metrics.NewObjects(mgr.GetCache(), mgr.Elected())} {
		if err := ctrlmetrics.Registry.Register(collector); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
	}
	for _, controller := range []interface {
		SetupWithManager(mgr ctrl.Manager, wrap reconcile.Middleware) error
	}{
		cacheserver.NewReconciler(config),
		shard.NewRootShardReconciler(config, clients),
		shard.NewShardReconciler(config, clients),
		virtualworkspace.NewReconciler(config),
		frontproxy.NewReconciler(config),
		kubeconfig.NewReconciler(config),
		backupstore.NewReconciler(config),
		backup.NewReconciler(config),
		restore.NewReconciler(config, etcdclient.Client{}, clients),
		backupschedule.NewReconciler(config),
		restoredrill.NewReconciler(config, drillNamespace, clients),
		&certificatesecret.Reconciler{Cluster: cluster},
	} {
		if err := controller.SetupWithManager(mgr, reconciliations.Instrument); err != nil {
			return err
		}
	}
	return nil
}

// readClusterID returns the UID of the namespace kube-system, which identifies the Kubernetes cluster.
func readClusterID(reader client.Reader) (string, error) {
	system := &corev1.Namespace{}
	if err := reader.Get(context.Background(), client.ObjectKey{Name: metav1.NamespaceSystem}, system); err != nil {
		return "", fmt.Errorf("reading the identity of the cluster: %w", err)
	}
	return string(system.UID), nil
}

// requireCertManager returns a clear error before the watches fail with an unclear one.
func requireCertManager(mapper meta.RESTMapper) error {
	for _, kind := range []string{certmanagerv1.CertificateKind, certmanagerv1.IssuerKind} {
		_, err := mapper.RESTMapping(certmanagerv1.SchemeGroupVersion.WithKind(kind).GroupKind(), certmanagerv1.SchemeGroupVersion.Version)
		if meta.IsNoMatchError(err) {
			return errors.New("cert-manager is not installed (kind " + kind + " is unknown): install it, and this operator starts at its next restart")
		}
		if err != nil {
			return fmt.Errorf("checking for cert-manager: %w", err)
		}
	}
	return nil
}
