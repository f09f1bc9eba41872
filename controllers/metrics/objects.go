package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/reconcile"
)

// readTimeout bounds how long a scrape waits for the caches of the manager, which fill at its start.
const readTimeout = 5 * time.Second

// phaseUnknown is the phase of an object that was not reconciled yet.
const phaseUnknown = "Unknown"

// Objects are the metrics about custom resources: their number, their conditions, the last success of Backups and RestoreDrills, and the
// Certificates that the operator makes for them. It is a prometheus.Collector.
type Objects struct {
	reader    client.Reader
	elected   <-chan struct{}
	kinds     []kind
	condition *prometheus.Desc
	success   *prometheus.Desc // of Backups
	drills    drillMetrics
	expiry    *prometheus.Desc // of Certificates
	renewal   *prometheus.Desc // of Certificates
}

// kind is the metrics of one kind of custom resource.
type kind struct {
	name  string // in labels
	list  client.ObjectList
	count *prometheus.Desc
	phase func(client.Object) string // nil for no label phase
}

// NewObjects returns the metrics of the objects in reader, a cache. They are empty until leads is closed: of several replicas of the
// operator, only the leader exports them, so that sums over all pods are right.
func NewObjects(reader client.Reader, elected <-chan struct{}) *Objects {
	count := func(name string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("kcp_operator_"+name+"_count", "Objects of this kind.", labels, nil)
	}
	return &Objects{
		reader:  reader,
		elected: elected,
		kinds: []kind{
			{"rootshard", &operatorv1alpha1.RootShardList{}, count("rootshard", "phase", "namespace"), phase},
			{"shard", &operatorv1alpha1.ShardList{}, count("shard", "phase", "namespace"), phase},
			{"frontproxy", &operatorv1alpha1.FrontProxyList{}, count("frontproxy", "phase", "namespace"), phase},
			{"cacheserver", &operatorv1alpha1.CacheServerList{}, count("cacheserver", "namespace"), nil},
			{"kubeconfig", &operatorv1alpha1.KubeconfigList{}, count("kubeconfig", "namespace"), nil},
			{"virtualworkspace", &operatorv1alpha1.VirtualWorkspaceList{}, count("virtualworkspace", "namespace"), nil},
			{"backupstore", &operatorv1alpha1.BackupStoreList{}, count("backupstore", "namespace"), nil},
			{"backup", &operatorv1alpha1.BackupList{}, count("backup", "phase", "namespace"), phase},
			{"backupschedule", &operatorv1alpha1.BackupScheduleList{}, count("backupschedule", "namespace"), nil},
			{"restore", &operatorv1alpha1.RestoreList{}, count("restore", "phase", "namespace"), phase},
			{"restoredrill", &operatorv1alpha1.RestoreDrillList{}, count("restoredrill", "namespace"), nil},
		},
		success: prometheus.NewDesc("kcp_operator_backup_last_success_timestamp_seconds",
			"When the last Backup of an installation that was completed had ended. Without one, there is no series.", []string{"namespace", "rootshard"}, nil),
		drills: newDrillMetrics(),
		expiry: prometheus.NewDesc("kcp_operator_certificate_expiration_timestamp_seconds",
			"Time at which a Certificate of the operator expires, in seconds since 1970. The label ca tells certificate authorities. Without an issued certificate, there is no series.",
			[]string{"namespace", "certificate", "ca"}, nil),
		renewal: prometheus.NewDesc("kcp_operator_certificate_renewal_timestamp_seconds",
			"Time at which cert-manager renews a Certificate of the operator, in seconds since 1970: one in the past has not been renewed.",
			[]string{"namespace", "certificate", "ca"}, nil),
		condition: prometheus.NewDesc("kcp_operator_condition_status", "Conditions of objects: 1 is True, 0 False, -1 Unknown.",
			[]string{"resource_type", "resource_name", "namespace", "condition_type"}, nil),
	}
}

func phase(object client.Object) string {
	out := ""
	switch o := object.(type) {
	case *operatorv1alpha1.RootShard:
		out = string(o.Status.Phase)
	case *operatorv1alpha1.Shard:
		out = string(o.Status.Phase)
	case *operatorv1alpha1.FrontProxy:
		out = string(o.Status.Phase)
	case *operatorv1alpha1.Backup:
		out = string(o.Status.Phase)
	case *operatorv1alpha1.Restore:
		out = string(o.Status.Phase)
	}
	if out == "" {
		return phaseUnknown
	}
	return out
}

// Describe implements prometheus.Collector.
func (o *Objects) Describe(out chan<- *prometheus.Desc) {
	for _, kind := range o.kinds {
		out <- kind.count
	}
	out <- o.condition
	out <- o.success
	o.drills.describe(out)
	out <- o.expiry
	out <- o.renewal
}

// Collect implements prometheus.Collector. A kind that cannot be listed is omitted, so that the scrape has all others.
func (o *Objects) Collect(out chan<- prometheus.Metric) {
	select {
	case <-o.elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	for _, kind := range o.kinds {
		logFailure(kind.name, o.collect(ctx, kind, out))
	}
	logFailure("certificate", o.collectCertificates(ctx, out))
}

func logFailure(kind string, err error) {
	var notStarted *cache.ErrCacheNotStarted
	if err != nil && !errors.As(err, &notStarted) {
		ctrl.Log.WithName("metrics").Error(err, "Failed to list objects for metrics", "kind", kind)
	}
}

func (o *Objects) collect(ctx context.Context, kind kind, out chan<- prometheus.Metric) error {
	list := kind.list.DeepCopyObject().(client.ObjectList)
	if err := o.reader.List(ctx, list); err != nil {
		return err
	}
	counts := map[[2]string]int{}        // by phase and namespace
	successes := map[[2]string]float64{} // of Backups, by namespace and RootShard
	err := meta.EachListItem(list, func(item runtime.Object) error {
		object := item.(reconcile.Object)
		key := [2]string{"", object.GetNamespace()}
		if kind.phase != nil {
			key[0] = kind.phase(object)
		}
		counts[key]++
		if backup, ok := item.(*operatorv1alpha1.Backup); ok && backup.Status.Phase == operatorv1alpha1.BackupPhaseCompleted && backup.Status.StoppedAt != nil &&
			!metav1.HasAnnotation(backup.ObjectMeta, operatorv1alpha1.AnnotationRemoveBackup) {
			installation := [2]string{backup.Namespace, backup.Spec.RootShardRef.Name}
			successes[installation] = max(successes[installation], float64(backup.Status.StoppedAt.Unix()))
		}
		if drill, ok := item.(*operatorv1alpha1.RestoreDrill); ok {
			o.drills.collect(drill, out)
		}
		for _, condition := range object.GetConditions() {
			out <- prometheus.MustNewConstMetric(o.condition, prometheus.GaugeValue, conditionValue(condition.Status),
				kind.name, object.GetName(), object.GetNamespace(), condition.Type)
		}
		return nil
	})
	for installation, success := range successes {
		out <- prometheus.MustNewConstMetric(o.success, prometheus.GaugeValue, success, installation[:]...)
	}
	for key, count := range counts {
		labels := key[:]
		if kind.phase == nil {
			labels = key[1:]
		}
		out <- prometheus.MustNewConstMetric(kind.count, prometheus.GaugeValue, float64(count), labels...)
	}
	return err
}

func conditionValue(status metav1.ConditionStatus) float64 {
	switch status {
	case metav1.ConditionTrue:
		return 1
	case metav1.ConditionFalse:
		return 0
	}
	return -1
}
