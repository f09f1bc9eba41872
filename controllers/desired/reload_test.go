package desired_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/atoll-dev/atoll/controllers/desired"
)

func TestRestartingChanges(t *testing.T) {
	pod := func(command string, paths ...string) *corev1.PodSpec {
		container := corev1.Container{Command: []string{command, "start"}}
		for _, path := range paths {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: path})
		}
		return &corev1.PodSpec{
			Containers: []corev1.Container{container},
			Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}}},
		}
	}
	subPath := pod("/kcp", "/etc/kcp/tls/server")
	subPath.Containers[0].VolumeMounts[0].SubPath = "tls.crt"

	const renewed, rekeyed, newCA = "a renewed certificate", "a new key", "a new CA"
	for name, tc := range map[string]struct {
		pod      *corev1.PodSpec
		restarts map[string]bool
	}{
		"the serving certificate of a shard":        {pod("/kcp", "/etc/kcp/tls/server"), nil},
		"the client certificate of a shard":         {pod("/kcp", "/etc/kcp/tls/client"), nil},
		"the serving certificate of a proxy":        {pod("/kcp-front-proxy", "/etc/kcp-front-proxy/tls"), nil},
		"the serving certificate of a cache server": {pod("/cache-server", "/etc/cache-server/tls/server"), nil},
		"the CA of clients":                         {pod("/kcp", "/etc/kcp/tls/ca/client"), nil},
		"the key that tokens are signed with":       {pod("/kcp", "/etc/kcp/tls/service-account"), map[string]bool{rekeyed: true}},
		"another shard's key of tokens":             {pod("/kcp", "/etc/kcp/tls/alpha/service-account"), map[string]bool{rekeyed: true}},
		"the second key of tokens":                  {pod("/kcp", "/etc/kcp/service-account-2"), map[string]bool{rekeyed: true}},
		"another shard's second key of tokens":      {pod("/kcp", "/etc/kcp/tls/root/service-account-2"), map[string]bool{rekeyed: true}},
		"the credentials for etcd":                  {pod("/kcp", "/etc/etcd/tls"), map[string]bool{newCA: true}},
		"the root CA":                               {pod("/kcp", "/etc/kcp/tls/ca/root"), map[string]bool{renewed: true, rekeyed: true, newCA: true}},
		"a Secret of the user":                      {pod("/kcp", "/somewhere"), map[string]bool{renewed: true, rekeyed: true, newCA: true}},
		"one that is mounted twice":                 {pod("/kcp", "/etc/kcp/tls/server", "/somewhere"), map[string]bool{renewed: true, rekeyed: true, newCA: true}},
		"a single file of one":                      {subPath, map[string]bool{renewed: true, rekeyed: true, newCA: true}},
		"a custom server":                           {pod("/mine", "/etc/kcp/tls/server"), map[string]bool{renewed: true, rekeyed: true, newCA: true}},
	} {
		t.Run(name, func(t *testing.T) {
			mounts := desired.PodMounts(tc.pod)
			revision := func(crt, key, ca string) string {
				return mounts.Revision(&corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Name: "s"},
					Data:       map[string][]byte{"tls.crt": []byte(crt), "tls.key": []byte(key), "ca.crt": []byte(ca)},
				})
			}
			before := revision("1", "1", "1")
			for change, after := range map[string]string{
				renewed: revision("2", "1", "1"), rekeyed: revision("1", "2", "1"), newCA: revision("1", "1", "2"),
			} {
				if have := before != after; have != tc.restarts[change] {
					t.Errorf("%s restarts it: %v", change, have)
				}
			}
		})
	}
}

func TestReloadedFilesOmitRevisionLabel(t *testing.T) {
	template := &corev1.PodTemplateSpec{}
	desired.LabelRevisions(template, desired.Revisions{Secrets: map[string]string{"reloaded": "", "read-once": "1"}})
	if len(template.Labels) != 1 {
		t.Errorf("labels: %v", template.Labels)
	}
}
