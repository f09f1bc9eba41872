package desired_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

// TestPhases checks what each phase of a re-keying renders, for each kind of server.
func TestPhases(t *testing.T) {
	for _, ca := range desired.RekeyableCAs() {
		t.Run(string(ca), func(t *testing.T) { testPhases(t, ca) })
	}
}

func testPhases(t *testing.T, ca desired.CA) {
	first := "root-" + string(ca)
	second := first + "-2"
	for name, tc := range map[string]struct {
		state   *operatorv1alpha1.CertificateAuthorityStatus
		trusted []string
		signer  string
		trust   string
	}{
		"without a record":         {nil, []string{first}, first, ""},
		"before a re-keying":       {caState("Stable", 1, 0), []string{first}, first, ""},
		"the new one is not made":  {unissued(caState("TrustBoth", 1, 2)), []string{first}, first, ""},
		"nor is a third one":       {unissued(caState("TrustBoth", 2, 3)), []string{second}, second, "trusts 2, has 2"},
		"both are trusted":         {caState("TrustBoth", 1, 2), []string{first, second}, first, "trusts 1 and 2, has 1"},
		"the new one issues":       {caState("Issue", 1, 2), []string{first, second}, second, "trusts 1 and 2, has 2"},
		"the previous one is gone": {caState("Retire", 1, 2), []string{second}, second, "trusts 2, has 2"},
		"after a re-keying":        {caState("Stable", 2, 0), []string{second}, second, "trusts 2, has 2"},
		"generations are skipped":  {caState("Issue", 2, 9), []string{second, first + "-9"}, first + "-9", "trusts 2 and 9, has 9"},
	} {
		t.Run(name, func(t *testing.T) {
			root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"}}
			if tc.state != nil {
				tc.state.Name = operatorv1alpha1.RekeyableCA(ca)
				root.Status.Certificates = &operatorv1alpha1.CertificatesStatus{CAs: []operatorv1alpha1.CertificateAuthorityStatus{*tc.state}}
			}
			if got := desired.SigningCA(root, ca); got != tc.signer {
				t.Errorf("%s signs, want %s", got, tc.signer)
			}
			if got := desired.ExistingCAs(root, ca); !slices.Equal(got, tc.trusted) {
				t.Errorf("there are %v, want %v", got, tc.trusted)
			}
			for kind, server := range renderAll(t, root) {
				if got := desired.LiveCATrust(&server.Deployment.Spec.Template, ca); got != tc.trust {
					t.Errorf("%s: the pods say %q, want %q", kind, got, tc.trust)
				}
				for _, of := range desired.RekeyableCAs() {
					want := []string{"root-" + string(of)} // another CA remains as it is
					if of == ca {
						want = tc.trusted
					}
					if got := trustedBy(server, of); !slices.Equal(got, want) {
						t.Errorf("%s trusts %v of %s, want %v", kind, got, of, want)
					}
				}
			}
		})
	}
}

func caState(phase operatorv1alpha1.CertificateAuthorityPhase, generation, next int32) *operatorv1alpha1.CertificateAuthorityStatus {
	return &operatorv1alpha1.CertificateAuthorityStatus{Phase: phase, Generation: generation, NextGeneration: next, NextFingerprint: "00"}
}

// unissued is a state whose next generation has no certificate.
func unissued(state *operatorv1alpha1.CertificateAuthorityStatus) *operatorv1alpha1.CertificateAuthorityStatus {
	state.NextFingerprint = ""
	return state
}

func renderAll(t *testing.T, root *operatorv1alpha1.RootShard) map[string]desired.Server {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "other", Namespace: "kcp"}
	shard := desired.NewShard(&operatorv1alpha1.Shard{ObjectMeta: meta}, root)
	out := map[string]desired.Server{
		"VirtualWorkspace": desired.NewVirtualWorkspace(&operatorv1alpha1.VirtualWorkspace{ObjectMeta: meta}, shard).Render(desired.Image{}, nil),
	}
	for kind, render := range map[string]func() (desired.Server, error){
		"RootShard": func() (desired.Server, error) {
			return desired.NewRootShard(root).Render(desired.Image{}, desired.Etcd{}, desired.Dependencies{})
		},
		"Shard": func() (desired.Server, error) {
			return shard.Render(desired.Image{}, desired.Etcd{}, desired.Dependencies{})
		},
		"internal proxy": func() (desired.Server, error) { return desired.NewInternalProxy(root).Render(desired.Image{}) },
		"FrontProxy": func() (desired.Server, error) {
			return desired.NewFrontProxy(&operatorv1alpha1.FrontProxy{ObjectMeta: meta}, root).Render(desired.Image{})
		},
	} {
		server, err := render()
		if err != nil {
			t.Fatal(err)
		}
		out[kind] = server
	}
	return out
}

// trustFlags are the flags with the files of CAs that servers trust.
var trustFlags = map[desired.CA]string{desired.ClientCA: "--client-ca-file=", desired.RequestHeaderCA: "--requestheader-client-ca-file="}

// trustedBy returns the Secrets with the certificates in the file that a flag of a server names, directly or merged.
func trustedBy(server desired.Server, ca desired.CA) []string {
	pod := server.Deployment.Spec.Template.Spec
	container := pod.Containers[0]
	at := slices.IndexFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, trustFlags[ca]) })
	if at < 0 {
		return nil
	}
	directory := path.Dir(strings.TrimPrefix(container.Args[at], trustFlags[ca]))
	mount := slices.IndexFunc(container.VolumeMounts, func(mount corev1.VolumeMount) bool { return mount.MountPath == directory })
	if mount < 0 {
		return nil
	}
	volume := slices.IndexFunc(pod.Volumes, func(volume corev1.Volume) bool { return volume.Name == container.VolumeMounts[mount].Name })
	secret := pod.Volumes[volume].Secret.SecretName
	for _, bundle := range server.Bundles {
		if bundle.Secret.Name == secret {
			return bundle.Sources()
		}
	}
	return []string{secret}
}
