package restoredrill

import (
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/internal/backup/manifest"
)

// TestCopy: a copy has nothing that names something outside of its namespace.
func TestCopy(t *testing.T) {
	size := resource.MustParse("20Gi")
	live := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp", Annotations: map[string]string{operatorv1alpha1.AnnotationPauseRollout: "true"}}}
	live.Spec.CommonShardSpec = operatorv1alpha1.CommonShardSpec{
		ShardBaseURL: "https://root.example.com", Replicas: ptr.To[int32](3), Audit: &operatorv1alpha1.AuditSpec{}, Auth: &operatorv1alpha1.AuthSpec{}, Authorization: &operatorv1alpha1.AuthorizationSpec{},
		KCPVirtualWorkspace: &corev1.LocalObjectReference{Name: "vw"}, CABundleSecretRef: &corev1.LocalObjectReference{Name: "ca"},
		Image: &operatorv1alpha1.ImageSpec{Repository: "mirror/atoll", Tag: "v2", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}},
		Etcd:  &operatorv1alpha1.EtcdConfig{Prefix: "/live", Managed: &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](3), Storage: &operatorv1alpha1.EtcdStorage{Size: &size}}},
		ContainerExtras: operatorv1alpha1.ContainerExtras{
			ExtraArgs:         []string{"--audit-webhook-config-file=/audit/config", "--encryption-provider-config", "/keys/config", "--feature-gates=A=true"},
			ExtraVolumes:      []corev1.Volume{{Name: "keys", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys"}}}, {Name: "audit"}},
			ExtraVolumeMounts: []corev1.VolumeMount{{Name: "keys", MountPath: "/keys"}, {Name: "audit", MountPath: "/audit"}},
		},
	}
	live.Spec.External, live.Spec.Cache.Ref = operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}, &corev1.LocalObjectReference{Name: "cache"}
	live.Spec.Certificates.IssuerRef = &operatorv1alpha1.IssuerReference{Name: "issuer"}
	saved := &manifest.Manifest{Installation: manifest.Installation{Version: "registry/atoll:v1"}, Shards: []manifest.Shard{{Name: "root", Prefix: "saved", LogicalClusters: 7}, {Name: "alpha", Prefix: "/alpha", LogicalClusters: 8}, {Name: "gone", Prefix: "/gone"}}}

	got := newRootShard("drills", live, saved)
	want := operatorv1alpha1.RootShardSpec{
		CommonShardSpec: operatorv1alpha1.CommonShardSpec{
			Replicas: ptr.To[int32](1), Image: &operatorv1alpha1.ImageSpec{Repository: "mirror/atoll", Tag: "v1", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}}},
			Etcd: &operatorv1alpha1.EtcdConfig{Prefix: "/saved", Managed: &operatorv1alpha1.ManagedEtcd{Replicas: ptr.To[int32](1), Storage: &operatorv1alpha1.EtcdStorage{Size: &size}}},
			ContainerExtras: operatorv1alpha1.ContainerExtras{
				ExtraArgs:         []string{withoutWebhooks, "--encryption-provider-config", "/keys/config", "--feature-gates=A=true"},
				ExtraVolumes:      live.Spec.ExtraVolumes[:1],
				ExtraVolumeMounts: live.Spec.ExtraVolumeMounts[:1],
			},
		},
		External: operatorv1alpha1.ExternalConfig{Hostname: "restore-drill.invalid", Port: 443},
		Proxy:    &operatorv1alpha1.RootShardProxySpec{Replicas: ptr.To[int32](1)},
	}
	if !equality.Semantic.DeepEqual(got.Spec, want) || got.Namespace != "drills" || got.Annotations[operatorv1alpha1.AnnotationRestore] != restoreName || got.Annotations[operatorv1alpha1.AnnotationPauseRollout] != "" || got.Annotations[annotationSaved] != "7" {
		t.Errorf("got %+v", got)
	}

	alpha := operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha"}}
	alpha.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://etcd.example.com:2379"}}
	alpha.Spec.RootShard.Reference = &corev1.LocalObjectReference{Name: "root"}
	newer := alpha.DeepCopy()
	newer.Name = "newer"
	shards := newShards("drills", live, []operatorv1alpha1.Shard{alpha, *newer}, saved)
	if len(shards) != 2 || shards[0].Name != "alpha" || shards[0].Annotations[annotationSaved] != "8" || shards[0].Spec.Etcd.Managed == nil || shards[0].Spec.Etcd.Endpoints != nil || shards[0].Spec.Etcd.Prefix != "/alpha" ||
		shards[1].Name != "gone" || shards[1].Spec.Etcd.Managed.Storage.Size != &size && shards[1].Spec.Etcd.Managed.Storage.Size.Cmp(size) != 0 || shards[1].Spec.RootShard.Reference.Name != "root" {
		t.Errorf("got %+v", shards)
	}

	drill := &operatorv1alpha1.RestoreDrill{}
	drill.Spec.Identity = operatorv1alpha1.SecretKeyReference{Name: "age", Key: "key"}
	store := &operatorv1alpha1.BackupStore{}
	store.Spec.S3Credentials = operatorv1alpha1.S3Credentials{AccessKeyID: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "id"}, SecretAccessKey: operatorv1alpha1.SecretKeyReference{Name: "s3", Key: "key"}}
	secrets := secretsOf(drill, store, got, shards)
	if names := slices.Sorted(maps.Keys(secrets)); !slices.Equal(names, []string{"age", "pull", "s3"}) || !slices.Equal(secrets["age"], []string{"key"}) || !slices.Equal(secrets["s3"], []string{"id", "key"}) || secrets["pull"] != nil {
		t.Errorf("got %v", secrets)
	}
}

// TestRecordBackup counts the loss from the begin of the snapshots.
func TestRecordBackup(t *testing.T) {
	start := time.Date(2030, 1, 2, 3, 0, 0, 0, time.UTC)
	run := &operatorv1alpha1.RestoreDrillRun{StartedAt: metav1.NewTime(start)}
	recordBackup(run, &manifest.Manifest{CutStartedAt: start.Add(-time.Hour), CutStoppedAt: start.Add(-time.Minute), Shards: []manifest.Shard{{LogicalClusters: 2}, {LogicalClusters: 3}}})
	if run.DataLoss != "1h0m0s" || run.SavedLogicalClusters != 5 {
		t.Errorf("got %+v", run)
	}
}

// TestExtras keeps only the Secret that has the configuration of the encryption.
func TestExtras(t *testing.T) {
	live := operatorv1alpha1.ContainerExtras{
		ExtraVolumeMounts: []corev1.VolumeMount{{Name: "all", MountPath: "/keys"}, {Name: "deep", MountPath: "/keys/deep/"}, {Name: "file", MountPath: "/etc/config.yaml", SubPath: "c"}, {Name: "map", MountPath: "/map"}, {Name: "ca", MountPath: "/ca"}},
	}
	for _, mount := range live.ExtraVolumeMounts {
		volume := corev1.Volume{Name: mount.Name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: mount.Name}}}
		if mount.Name == "map" {
			volume.VolumeSource = corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}
		}
		live.ExtraVolumes = append(live.ExtraVolumes, volume)
	}
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"in a directory":         {[]string{"--encryption-provider-config=/keys/config"}, "all"},
		"in one below":           {[]string{"--encryption-provider-config", "/keys/deep/config"}, "deep"},
		"beside it":              {[]string{"--encryption-provider-config=/keys/deeper"}, "all"},
		"a file":                 {[]string{"--encryption-provider-config=/etc/config.yaml"}, "file"},
		"a path that leaves one": {[]string{"--encryption-provider-config=/ca/../keys/config"}, "all"},
		"a ConfigMap":            {[]string{"--encryption-provider-config=/map/config"}, ""},
		"of the image":           {[]string{"--encryption-provider-config=/keyss/config"}, ""},
		"without a value":        {[]string{"--encryption-provider-config"}, ""},
		"without the flag":       {[]string{"--feature-gates=A=true"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			live.ExtraArgs = tc.args
			out, got := newExtras(live), ""
			for i, volume := range out.ExtraVolumes {
				got += volume.Secret.SecretName
				if out.ExtraVolumeMounts[i].Name != volume.Name {
					t.Errorf("got %+v", out)
				}
			}
			if got != tc.want || len(out.ExtraVolumes) != len(out.ExtraVolumeMounts) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestImage has the version of the backup, and the registry of today unless one of the two is a digest.
func TestImage(t *testing.T) {
	for name, tc := range map[string]struct {
		live        *operatorv1alpha1.ImageSpec
		saved, want string
	}{
		"the default":      {nil, "registry/atoll:v1", "registry/atoll:v1"},
		"a mirror":         {&operatorv1alpha1.ImageSpec{Repository: "mirror/atoll"}, "registry/atoll:v1", "mirror/atoll:v1"},
		"a digest":         {&operatorv1alpha1.ImageSpec{Repository: "mirror/atoll", Tag: "v2"}, "registry/atoll@sha256:1", "registry/atoll@sha256:1"},
		"a digest since":   {&operatorv1alpha1.ImageSpec{Repository: "mirror/atoll@sha256", Tag: "2"}, "registry/atoll:v1", "registry/atoll:v1"},
		"nothing is known": {&operatorv1alpha1.ImageSpec{Repository: "mirror/atoll", Tag: "v2"}, "", "mirror/atoll:v2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newImage(tc.live, tc.saved); got.Repository+":"+got.Tag != tc.want {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
		})
	}
}

// TestHistory keeps the newest of each result.
func TestHistory(t *testing.T) {
	run := func(result operatorv1alpha1.RestoreDrillResult, backup string) operatorv1alpha1.RestoreDrillRun {
		return operatorv1alpha1.RestoreDrillRun{Result: result, Backup: backup}
	}
	const succeeded, failed = operatorv1alpha1.RestoreDrillSucceeded, operatorv1alpha1.RestoreDrillFailed
	history := []operatorv1alpha1.RestoreDrillRun{run(succeeded, "7"), run(failed, "6"), run(succeeded, "5"), run(failed, "4"), run(succeeded, "3"), run(succeeded, "2"), run(failed, "1")}
	for name, tc := range map[string]struct {
		succeeded, failed *int32
		want              string
	}{
		"by default":        {nil, nil, "7653"},
		"none that failed":  {ptr.To[int32](1), ptr.To[int32](0), "7"},
		"more than are had": {ptr.To[int32](9), ptr.To[int32](9), "7654321"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, run := range limit(history, &operatorv1alpha1.RestoreDrillSpec{SuccessfulDrillsHistoryLimit: tc.succeeded, FailedDrillsHistoryLimit: tc.failed}) {
				got += run.Backup
			}
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
