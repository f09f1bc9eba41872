package shard

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
	"github.com/atoll-dev/atoll/internal/golden"
)

func TestValidateRootShard(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.RootShard)
		kind   status.State
		text   string
	}{
		"the minimal spec is honored": {func(*operatorv1alpha1.RootShard) {}, status.Satisfied, ""},
		"a long name is rejected": {
			func(r *operatorv1alpha1.RootShard) { r.Name = strings.Repeat("a", 41) }, status.Stalled, "has 41 characters and may have 40"},
		"a name with a dot is rejected": {func(r *operatorv1alpha1.RootShard) { r.Name = "a.b" }, status.Stalled, "contains a dot"},
		"a port out of range is rejected": {
			func(r *operatorv1alpha1.RootShard) { r.Spec.External.Port = 70000 }, status.Stalled, "external.port is 70000: set a port from 1 to 65535"},
		"a private port out of range is rejected": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.External.PrivateHostname, r.Spec.External.PrivatePort = "inside", ptr.To[int32](0)
			}, status.Stalled, "external.privatePort is 0: set a port from 1 to 65535"},
		"an address without a name is rejected": {
			func(r *operatorv1alpha1.RootShard) { r.Spec.External.Hostname = "" }, status.Stalled, "external.hostname is empty"},
		"an etcd without endpoints is rejected": {
			func(r *operatorv1alpha1.RootShard) { r.Spec.Etcd = &operatorv1alpha1.EtcdConfig{} }, status.Stalled, "etcd.endpoints is empty"},
		"a base URL without TLS is rejected": {
			func(r *operatorv1alpha1.RootShard) { r.Spec.ShardBaseURL = "http://root" }, status.Stalled, "must be an https URL"},
		"a cache server is honored": {
			func(r *operatorv1alpha1.RootShard) { r.Spec.Cache.Ref = &corev1.LocalObjectReference{Name: "c"} }, status.Satisfied, ""},
		"a cache server without a name is a warning": {
			func(r *operatorv1alpha1.RootShard) { r.Spec.Cache.Ref = &corev1.LocalObjectReference{} }, status.Warning, "spec.cache.ref"},
		"a virtual workspace server is honored": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.KCPVirtualWorkspace = &corev1.LocalObjectReference{Name: "v"}
			}, status.Satisfied, ""},
		"two sources of trust are a warning": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.Certificates.Certificates = operatorv1alpha1.Certificates{
					IssuerRef: &operatorv1alpha1.IssuerReference{Name: "i"}, CASecretRef: &corev1.LocalObjectReference{Name: "s"},
				}
			}, status.Warning, "spec.certificates.issuerRef: caSecretRef is set, too, and takes precedence"},
		"groups to drop are a warning": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.Auth = &operatorv1alpha1.AuthSpec{DropGroups: []string{"a"}}
			}, status.Warning, "set it on the FrontProxy"},
		"an unknown certificate is a warning": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.CertificateTemplates = operatorv1alpha1.CertificateTemplates{"sever": {}}
			}, status.Warning, "spec.certificateTemplates.sever: there is no such certificate"},
		"an authorizer without an address is a warning": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.Authorization = &operatorv1alpha1.AuthorizationSpec{Webhook: &operatorv1alpha1.AuthorizationWebhook{Version: "v1"}}
			}, status.Warning, "spec.authorization.webhook.version"},
		"several members on an emptyDir are a warning": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Managed: &operatorv1alpha1.ManagedEtcd{
					Replicas: ptr.To[int32](3), Storage: &operatorv1alpha1.EtcdStorage{EmptyDir: &corev1.EmptyDirVolumeSource{}},
				}}
			}, status.Warning, "spec.etcd.managed.replicas"},
		"credentials of etcd without a name are rejected": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.Etcd = &operatorv1alpha1.EtcdConfig{Endpoints: []string{"https://etcd:2379"}, TLSConfig: &operatorv1alpha1.EtcdTLSConfig{}}
			}, status.Stalled, "etcd.tlsConfig.secretRef.name is empty"},
		"a CA Secret without a name is a warning": {
			func(r *operatorv1alpha1.RootShard) { r.Spec.Certificates.CASecretRef = &corev1.LocalObjectReference{} },
			status.Warning, "spec.certificates.caSecretRef: it names no Secret"},
		"a template for a CA that is not made is a warning": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.Certificates.CASecretRef = &corev1.LocalObjectReference{Name: "s"}
				r.Spec.CertificateTemplates = operatorv1alpha1.CertificateTemplates{"root-ca": {}}
			}, status.Warning, "spec.certificateTemplates.root-ca: the root CA comes from caSecretRef"},
		"an audit webhook without an address is a warning": {
			func(r *operatorv1alpha1.RootShard) {
				r.Spec.Audit = &operatorv1alpha1.AuditSpec{Webhook: &operatorv1alpha1.AuditWebhook{}}
			}, status.Warning, "spec.audit.webhook: no webhook is configured"},
		"a private port without a name is a warning": {
			func(r *operatorv1alpha1.RootShard) { r.Spec.External.PrivatePort = ptr.To[int32](1) }, status.Warning, "spec.external.privatePort"},
	} {
		t.Run(name, func(t *testing.T) {
			root := &operatorv1alpha1.RootShard{
				ObjectMeta: metav1.ObjectMeta{Name: "root"},
				Spec:       operatorv1alpha1.RootShardSpec{External: operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}},
			}
			tc.change(root)
			result := validateRootShard(root)
			if result.State != tc.kind || !strings.Contains(result.Message, tc.text) {
				t.Errorf("got %+v", result)
			}
		})
	}
}

func TestFullRootShardSample(t *testing.T) {
	if result := validateRootShard(golden.Sample[operatorv1alpha1.RootShard](t, "full/rootshard.yaml")); result.State != status.Satisfied {
		t.Errorf("got %+v", result)
	}
}
