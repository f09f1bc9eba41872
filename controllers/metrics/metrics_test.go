package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/internal/memory"
	"github.com/atoll-dev/atoll/controllers/metrics"
	"github.com/atoll-dev/atoll/controllers/reconcile"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

// closedChannel is the elected channel of the leader.
func closedChannel() <-chan struct{} {
	out := make(chan struct{})
	close(out)
	return out
}

func TestObjects(t *testing.T) {
	alpha := &operatorv1alpha1.Shard{ObjectMeta: meta("kcp", "alpha")}
	alpha.Status.Phase = operatorv1alpha1.ShardPhaseRunning
	alpha.Status.Conditions = []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionTrue}, {Type: "Stalled", Status: metav1.ConditionFalse}, {Type: "RolledOut", Status: metav1.ConditionUnknown},
	}
	beta := &operatorv1alpha1.Shard{ObjectMeta: meta("kcp", "beta")}
	beta.Status.Phase = operatorv1alpha1.ShardPhaseRunning
	cluster := memory.NewClient(t, alpha, beta,
		&operatorv1alpha1.Shard{ObjectMeta: meta("other", "alpha")},
		&operatorv1alpha1.CacheServer{ObjectMeta: meta("kcp", "cache")},
	)
	objects := metrics.NewObjects(cluster, closedChannel())
	expect := func(name, expected string) {
		t.Helper()
		if err := testutil.CollectAndCompare(objects, strings.NewReader(expected)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	const count = "# HELP kcp_operator_%[1]s_count Objects of this kind.\n# TYPE kcp_operator_%[1]s_count gauge\n"
	expect("all of them", fmt.Sprintf(count, "cacheserver")+`kcp_operator_cacheserver_count{namespace="kcp"} 1
# HELP kcp_operator_condition_status Conditions of objects: 1 is True, 0 False, -1 Unknown.
# TYPE kcp_operator_condition_status gauge
kcp_operator_condition_status{condition_type="Ready",namespace="kcp",resource_name="alpha",resource_type="shard"} 1
kcp_operator_condition_status{condition_type="RolledOut",namespace="kcp",resource_name="alpha",resource_type="shard"} -1
kcp_operator_condition_status{condition_type="Stalled",namespace="kcp",resource_name="alpha",resource_type="shard"} 0
`+fmt.Sprintf(count, "shard")+`kcp_operator_shard_count{namespace="kcp",phase="Running"} 2
kcp_operator_shard_count{namespace="other",phase="Unknown"} 1
`)
	for _, deleted := range []client.Object{alpha, beta} {
		if err := cluster.Delete(t.Context(), deleted); err != nil {
			t.Fatal(err)
		}
	}
	expect("without those that were deleted", fmt.Sprintf(count, "cacheserver")+`kcp_operator_cacheserver_count{namespace="kcp"} 1
`+fmt.Sprintf(count, "shard")+`kcp_operator_shard_count{namespace="other",phase="Unknown"} 1
`)
}

// TestLastSuccess exports the Backup of each installation that ended last, of those that were completed.
func TestLastSuccess(t *testing.T) {
	ended := func(name, rootShard string, phase operatorv1alpha1.BackupPhase, at int64) *operatorv1alpha1.Backup {
		out := &operatorv1alpha1.Backup{ObjectMeta: meta("kcp", name)}
		stopped := metav1.Unix(at, 0)
		out.Spec.RootShardRef.Name, out.Status.Phase, out.Status.StoppedAt = rootShard, phase, &stopped
		return out
	}
	begun := ended("e", "root", operatorv1alpha1.BackupPhaseCompleted, 400) // its removal has begun
	begun.Annotations = map[string]string{operatorv1alpha1.AnnotationRemoveBackup: "true"}
	objects := metrics.NewObjects(memory.NewClient(t, begun,
		ended("a", "root", operatorv1alpha1.BackupPhaseCompleted, 200), ended("b", "root", operatorv1alpha1.BackupPhaseCompleted, 100),
		ended("c", "root", operatorv1alpha1.BackupPhaseFailed, 300), ended("d", "other", operatorv1alpha1.BackupPhaseFailed, 300),
	), closedChannel())
	const name = "kcp_operator_backup_last_success_timestamp_seconds"
	if err := testutil.CollectAndCompare(objects, strings.NewReader("# HELP "+name+` When the last Backup of an installation that was completed had ended. Without one, there is no series.
# TYPE `+name+` gauge
`+name+`{namespace="kcp",rootshard="root"} 200
`), name); err != nil {
		t.Error(err)
	}
}

// TestDrills has the figures of the last success, also when a drill has failed since.
func TestDrills(t *testing.T) {
	stopped := metav1.Unix(200, 0)
	drill := &operatorv1alpha1.RestoreDrill{ObjectMeta: meta("kcp", "weekly")}
	drill.Spec.RootShardRef.Name = "root"
	drill.Status = operatorv1alpha1.RestoreDrillStatus{LastSuccessfulTime: &stopped, RecoveryTime: "2m3s", DataLoss: "1h0m0s", LastResult: operatorv1alpha1.RestoreDrillFailed}
	objects := metrics.NewObjects(memory.NewClient(t, drill, &operatorv1alpha1.RestoreDrill{ObjectMeta: meta("kcp", "new")}), closedChannel())
	const recovery, loss, labels = "kcp_operator_restore_drill_recovery_seconds", "kcp_operator_restore_drill_data_loss_seconds", `{namespace="kcp",restoredrill="weekly",rootshard="root"}`
	if err := testutil.CollectAndCompare(objects, strings.NewReader("# HELP "+loss+` How old the data of the backup was when the last drill that succeeded began. Without one, there is no series.
# TYPE `+loss+` gauge
`+loss+labels+` 3600
# HELP `+recovery+` How long the last drill that succeeded took until the restored shards served. Without one, there is no series.
# TYPE `+recovery+` gauge
`+recovery+labels+` 123
`), recovery, loss); err != nil {
		t.Error(err)
	}
}

// TestCertificates exports the times of the Certificates that the operator has made, also of authorities, and not of those of users.
func TestCertificates(t *testing.T) {
	certificate := func(name, owner string, isCA bool, expiry, renewal int64) *certmanagerv1.Certificate {
		out := &certmanagerv1.Certificate{ObjectMeta: meta("kcp", name), Spec: certmanagerv1.CertificateSpec{IsCA: isCA}}
		if owner != "" {
			out.OwnerReferences = []metav1.OwnerReference{{APIVersion: owner, Kind: "RootShard", Name: "root", UID: "1", Controller: ptr.To(true)}}
		}
		if expiry > 0 {
			notAfter, renewalTime := metav1.Unix(expiry, 0), metav1.Unix(renewal, 0)
			out.Status.NotAfter, out.Status.RenewalTime = &notAfter, &renewalTime
		}
		return out
	}
	const own = "operator.kcp.io/v1alpha1"
	objects := metrics.NewObjects(memory.NewClient(t,
		certificate("root-ca", own, true, 2000, 1500), certificate("root-server", own, false, 300, 200), certificate("root-client", own, false, 0, 0),
		certificate("mine", "", false, 300, 200), certificate("other", "example.com/v1", false, 300, 200),
	), closedChannel())
	const expiry, renewal = "kcp_operator_certificate_expiration_timestamp_seconds", "kcp_operator_certificate_renewal_timestamp_seconds"
	if err := testutil.CollectAndCompare(objects, strings.NewReader("# HELP "+expiry+` Time at which a Certificate of the operator expires, in seconds since 1970. The label ca tells certificate authorities. Without an issued certificate, there is no series.
# TYPE `+expiry+` gauge
`+expiry+`{ca="true",certificate="root-ca",namespace="kcp"} 2000
`+expiry+`{ca="false",certificate="root-server",namespace="kcp"} 300
# HELP `+renewal+` Time at which cert-manager renews a Certificate of the operator, in seconds since 1970: one in the past has not been renewed.
# TYPE `+renewal+` gauge
`+renewal+`{ca="true",certificate="root-ca",namespace="kcp"} 1500
`+renewal+`{ca="false",certificate="root-server",namespace="kcp"} 200
`), expiry, renewal); err != nil {
		t.Error(err)
	}
}

func TestObjectsBeforeElection(t *testing.T) {
	objects := metrics.NewObjects(memory.NewClient(t, &operatorv1alpha1.CacheServer{ObjectMeta: meta("kcp", "cache")}), make(chan struct{}))
	if n := testutil.CollectAndCount(objects); n != 0 {
		t.Errorf("it exports %d series", n)
	}
}

func TestReconciliations(t *testing.T) {
	reconciliations := metrics.NewReconciliations()
	for _, err := range []error{nil, errors.New("no connection to 10.0.0.1:47112"), errors.New("no connection to 10.0.0.1:47113"), fmt.Errorf("%w: timeout", reconcile.ErrRead)} {
		wrapped := reconciliations.Instrument("shard", ctrlreconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, err }))
		if _, got := wrapped.Reconcile(t.Context(), ctrl.Request{}); got != err {
			t.Errorf("the error becomes %v", got)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(reconciliations)
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP kcp_operator_reconciliation_errors_total Reconciles that failed and are retried. Waiting is no failure; conditions report it.
# TYPE kcp_operator_reconciliation_errors_total counter
kcp_operator_reconciliation_errors_total{controller="shard",error_type="read_error"} 1
kcp_operator_reconciliation_errors_total{controller="shard",error_type="reconcile_error"} 2
`), "kcp_operator_reconciliation_errors_total"); err != nil {
		t.Error(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, family := range families {
		if family.GetName() != "kcp_operator_reconciliation_duration_seconds" {
			continue
		}
		for _, series := range family.GetMetric() {
			counts[series.GetLabel()[0].GetValue()+" "+series.GetLabel()[1].GetValue()] = series.GetHistogram().GetSampleCount()
		}
	}
	if counts["shard success"] != 1 || counts["shard error"] != 3 || len(counts) != 2 {
		t.Errorf("timed are %v", counts)
	}
}
