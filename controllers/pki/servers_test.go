package pki_test

import (
	"slices"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/controllers/pki"
	"github.com/atoll-dev/atoll/internal/golden"
)

func TestRenderedServerCertificates(t *testing.T) {
	root := golden.Sample[operatorv1alpha1.RootShard](t, "full/rootshard.yaml")
	shard := desired.NewShard(golden.Sample[operatorv1alpha1.Shard](t, "full/shard.yaml"), root)
	virtualWorkspace := golden.Sample[operatorv1alpha1.VirtualWorkspace](t, "full/virtualworkspace.yaml")
	cache := golden.Sample[operatorv1alpha1.CacheServer](t, "full/cacheserver.yaml")
	golden.Check(t, "full_shard", pki.Shard(shard, cache).Certificates...)
	golden.Check(t, "full_virtualworkspace", pki.VirtualWorkspace(desired.NewVirtualWorkspace(virtualWorkspace, shard), virtualWorkspace, cache).Certificates...)
	objects := pki.CacheServer(cache, desired.ParentRootShard(root))
	golden.Check(t, "full_cacheserver", objects.Certificates...)
	golden.Check(t, "full_cacheserver_issuers", objects.Issuers...)
}

// TestCacheClientNames: a shard that could write the objects of others could control them.
func TestCacheClientNames(t *testing.T) {
	cache := &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "kcp"}}
	alpha := &operatorv1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Name: "alpha", Namespace: "kcp"}}
	virtualWorkspace := &operatorv1alpha1.VirtualWorkspace{ObjectMeta: metav1.ObjectMeta{Name: "views", Namespace: "kcp"}}
	installation := newRootShard()
	installation.Name = "main"
	desiredShard := desired.NewShard(alpha, installation)
	for name, tc := range map[string]struct {
		objects    pki.Objects
		name, user string
	}{
		"the root shard goes by root":               {pki.RootShard(installation, cache), "main-cache-client", "system:kcp:shard:root"},
		"another one by its own name":               {pki.Shard(desiredShard, cache), "alpha-cache-client", "system:kcp:shard:alpha"},
		"a virtual workspace server is not a shard": {pki.VirtualWorkspace(desired.NewVirtualWorkspace(virtualWorkspace, desiredShard), virtualWorkspace, cache), "views-cache-client", "system:kcp:virtual-workspace:views"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := findCertificate(t, tc.objects, tc.name).Spec
			if spec.CommonName != tc.user || !slices.Equal(spec.Subject.Organizations, []string{"system:kcp:shard"}) || spec.IssuerRef.Name != "cache-ca" {
				t.Errorf("got %s of %v by %s", spec.CommonName, spec.Subject.Organizations, spec.IssuerRef.Name)
			}
		})
	}
	for _, certificate := range pki.Shard(desiredShard, nil).Certificates {
		if certificate.Name == "alpha-cache-client" {
			t.Error("there is a certificate for a cache that does not exist")
		}
	}
}

func TestCacheServerCA(t *testing.T) {
	for name, tc := range map[string]struct {
		spec   operatorv1alpha1.Certificates
		signer string // of the CA; "" where the user provides it
	}{
		"signs itself":         {operatorv1alpha1.Certificates{}, "cache-selfsigned"},
		"is signed by another": {operatorv1alpha1.Certificates{IssuerRef: &operatorv1alpha1.IssuerReference{Name: "company"}}, "company"},
		"is the user's":        {operatorv1alpha1.Certificates{CASecretRef: &corev1.LocalObjectReference{Name: "own"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := pki.CacheServer(&operatorv1alpha1.CacheServer{
				ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "kcp"}, Spec: operatorv1alpha1.CacheServerSpec{Certificates: tc.spec},
			}, nil)
			signer := ""
			for _, certificate := range objects.Certificates {
				if certificate.Name == "cache-ca" {
					signer = certificate.Spec.IssuerRef.Name
				} else if certificate.Spec.IssuerRef.Name != "cache-ca" {
					t.Errorf("%s is signed by %s", certificate.Name, certificate.Spec.IssuerRef.Name)
				}
			}
			if signer != tc.signer {
				t.Errorf("signed by %q", signer)
			}
		})
	}
}

func TestParentClientNames(t *testing.T) {
	europe := &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "cache-1", Namespace: "kcp"}, Spec: operatorv1alpha1.CacheServerSpec{CacheName: "europe"}}
	world := &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "world", Namespace: "kcp"}}
	for name, tc := range map[string]struct {
		parent *desired.CacheParent
		issuer string // "" for no certificate
	}{
		"of a CacheServer":               {desired.ParentCacheServer(world), "world-ca"},
		"of a root shard":                {desired.ParentRootShard(newRootShard()), newRootShard().Name + "-client-ca"},
		"from a kubeconfig of the user":  {desired.ParentKubeconfig("global"), ""},
		"which it has not, being on top": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := pki.CacheServer(europe, tc.parent)
			at := slices.IndexFunc(objects.Certificates, func(c *certmanagerv1.Certificate) bool { return c.Name == "cache-1-parent-client" })
			if (at >= 0) != (tc.issuer != "") {
				t.Fatalf("certificate %d of %d", at, len(objects.Certificates))
			}
			if at < 0 {
				return
			}
			spec := objects.Certificates[at].Spec
			if spec.CommonName != "system:kcp:cache:europe" || !slices.Equal(spec.Subject.Organizations, []string{"system:kcp:cache"}) || spec.IssuerRef.Name != tc.issuer {
				t.Errorf("got %s of %v by %s", spec.CommonName, spec.Subject.Organizations, spec.IssuerRef.Name)
			}
		})
	}
}
