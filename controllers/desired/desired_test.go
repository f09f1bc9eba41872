package desired_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/golden"
)

var image = desired.Image{Repository: "registry.example.com/atoll", Tag: "v0.1.0"}

func externalEtcd(root *operatorv1alpha1.RootShard) desired.Etcd {
	if root.Spec.Etcd == nil {
		return desired.Etcd{Servers: []string{"https://root-etcd-0.root-etcd:2379"}, Credentials: "root-etcd-client"}
	}
	return desired.Etcd{Servers: root.Spec.Etcd.Endpoints, Prefix: root.Spec.Etcd.Prefix, Credentials: root.Spec.Etcd.TLSConfig.SecretRef.Name}
}

func TestRenderedObjects(t *testing.T) {
	for name, files := range map[string]struct{ root, front string }{
		"minimal": {"rootshard_minimal.yaml", "frontproxy.yaml"},
		"full":    {"full/rootshard.yaml", "full/frontproxy.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			root := golden.Sample[operatorv1alpha1.RootShard](t, files.root)
			front := golden.Sample[operatorv1alpha1.FrontProxy](t, files.front)
			kubeconfigs, err := desired.ShardKubeconfigs(desired.NewRootShard(root))
			if err != nil {
				t.Fatal(err)
			}
			objects := []client.Object{deployment(root, externalEtcd(root)), desired.ShardService(desired.NewRootShard(root))}
			for _, secret := range kubeconfigs {
				objects = append(objects, withStringData(secret))
			}
			golden.Check(t, name+"_rootshard", objects...)
			golden.Check(t, name+"_internal_proxy", proxyObjects(t, desired.NewInternalProxy(root))...)
			golden.Check(t, name+"_frontproxy", proxyObjects(t, desired.NewFrontProxy(front, root, desired.TokenKeys(root, root.Name)...))...)
		})
	}
}

// deployment is that of a root shard without dependencies.
func deployment(root *operatorv1alpha1.RootShard, etcd desired.Etcd) *appsv1.Deployment {
	return desired.ShardDeployment(desired.NewRootShard(root), image, etcd, desired.Dependencies{TokenKeys: desired.TokenKeys(root, root.Name)})
}

func proxyObjects(t *testing.T, proxy desired.Proxy) []client.Object {
	t.Helper()
	config, err := desired.ProxyConfig(proxy)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := desired.ProxyKubeconfig(proxy)
	if err != nil {
		t.Fatal(err)
	}
	return []client.Object{desired.ProxyDeployment(proxy, image), desired.ProxyService(proxy), config, withStringData(kubeconfig)}
}

// withStringData shows a Secret's content in a golden file as text.
func withStringData(secret *corev1.Secret) *corev1.Secret {
	secret.StringData = map[string]string{}
	for key, value := range secret.Data {
		secret.StringData[key] = string(value)
	}
	secret.Data = nil
	return secret
}

func TestUserKubeconfig(t *testing.T) {
	file, err := desired.UserKubeconfig{
		User: "admin", Server: "https://kcp.example.com:443", Workspace: "root:team", CA: []byte("CA"), Cert: []byte("CERT"), Key: []byte("KEY"), WithShardBase: true,
	}.File()
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: "admin", Namespace: "kcp", UID: "1"}}
	kubeconfig.Spec.SecretRef.Name = "admin-kubeconfig"
	golden.Check(t, "user_kubeconfig", withStringData(desired.UserSecret(kubeconfig, root(nil), file, true)))
}

func root(change func(*operatorv1alpha1.RootShard)) *operatorv1alpha1.RootShard {
	out := &operatorv1alpha1.RootShard{
		ObjectMeta: metav1.ObjectMeta{Name: "root", Namespace: "kcp"},
		Spec:       operatorv1alpha1.RootShardSpec{External: operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 443}},
	}
	if change != nil {
		change(out)
	}
	return out
}

func containerArgs(deployment *appsv1.Deployment) []string {
	return deployment.Spec.Template.Spec.Containers[0].Args
}

func TestArguments(t *testing.T) {
	for name, tc := range map[string]struct {
		root     func(*operatorv1alpha1.RootShard)
		front    func(*operatorv1alpha1.FrontProxy)
		want     []string
		unwanted []string
	}{
		"a list with the empty group drops nothing": {
			front: func(f *operatorv1alpha1.FrontProxy) {
				f.Spec.Auth = &operatorv1alpha1.AuthSpec{DropGroups: []string{""}}
			},
			want: []string{"--authentication-drop-groups="}, unwanted: []string{"--authentication-pass-on-groups"},
		},
		"groups are joined without quotes": {
			front: func(f *operatorv1alpha1.FrontProxy) {
				f.Spec.Auth = &operatorv1alpha1.AuthSpec{DropGroups: []string{"a", "b"}, PassOnGroups: []string{"c"}}
			},
			want: []string{"--authentication-drop-groups=a,b", "--authentication-pass-on-groups=c"},
		},
		"without a list the proxy has its defaults": {unwanted: []string{"--authentication-drop-groups", "--authentication-pass-on-groups"}},
		"an OIDC CA without a key has the usual one": {
			front: func(f *operatorv1alpha1.FrontProxy) {
				f.Spec.Auth = &operatorv1alpha1.AuthSpec{OIDC: &operatorv1alpha1.OIDCConfig{CAFileRef: &operatorv1alpha1.OIDCCAFileRef{Name: "ca"}}}
			},
			want: []string{"--oidc-ca-file=/etc/kcp/tls/oidc/ca.crt"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			front := &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: "kcp"}}
			if tc.front != nil {
				tc.front(front)
			}
			have := containerArgs(desired.ProxyDeployment(desired.NewFrontProxy(front, root(tc.root)), image))
			for _, want := range tc.want {
				if !slices.Contains(have, want) {
					t.Errorf("%s is missing from %q", want, have)
				}
			}
			for _, unwanted := range tc.unwanted {
				if slices.ContainsFunc(have, func(arg string) bool { return strings.HasPrefix(arg, unwanted) }) {
					t.Errorf("%s is in %q", unwanted, have)
				}
			}
		})
	}
}

func TestArgumentOrder(t *testing.T) {
	have := containerArgs(deployment(root(func(r *operatorv1alpha1.RootShard) {
		r.Spec.ExtraArgs = []string{"--logging-format=text"}
		r.Spec.Logging = &operatorv1alpha1.LoggingSpec{Level: 4}
	}), desired.Etcd{Servers: []string{"http://etcd:2379"}}))
	order := []string{"--logging-format=json", "-v=4", "--logging-format=text", "--etcd-servers=http://etcd:2379"}
	last := -1
	for _, arg := range order {
		at := slices.Index(have, arg)
		if at <= last {
			t.Fatalf("%s is at %d, want after %d: %q", arg, at, last, have)
		}
		last = at
	}
}

func TestServicePort(t *testing.T) {
	for name, tc := range map[string]struct {
		front operatorv1alpha1.FrontProxySpec
		want  int32
	}{
		"its own external port":                         {operatorv1alpha1.FrontProxySpec{External: &operatorv1alpha1.ExternalConfig{Hostname: "a", Port: 8443}}, 8443},
		"the port of the deprecated external hostname":  {operatorv1alpha1.FrontProxySpec{ExternalHostname: "a:9443"}, 9443},
		"the default where the deprecated one has none": {operatorv1alpha1.FrontProxySpec{ExternalHostname: "a"}, 6443},
		"the RootShard's":                               {operatorv1alpha1.FrontProxySpec{}, 443},
	} {
		t.Run(name, func(t *testing.T) {
			front := &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: "kcp"}, Spec: tc.front}
			if have := desired.ProxyService(desired.NewFrontProxy(front, root(nil))).Spec.Ports[0].Port; have != tc.want {
				t.Errorf("got %d, want %d", have, tc.want)
			}
		})
	}
}

func TestURLs(t *testing.T) {
	private := root(func(r *operatorv1alpha1.RootShard) { r.Spec.External.PrivateHostname = "inside" })
	privatePort := root(func(r *operatorv1alpha1.RootShard) {
		r.Spec.External.PrivateHostname, r.Spec.External.PrivatePort = "inside", ptr.To[int32](7443)
	})
	portOnly := root(func(r *operatorv1alpha1.RootShard) { r.Spec.External.PrivatePort = ptr.To[int32](7443) })
	domain := root(func(r *operatorv1alpha1.RootShard) { r.Spec.ClusterDomain = "example.internal" })
	for name, tc := range map[string]struct{ have, want string }{
		"the base URL is the Service's":             {desired.RootShardBaseURL(root(nil)), "https://root-kcp.kcp.svc.cluster.local:6443"},
		"the cluster domain is honored":             {desired.InternalProxyURL(domain), "https://root-proxy.kcp.svc.example.internal:6443"},
		"the private name takes the public port":    {desired.PrivateURL(private), "https://inside:443"},
		"the private port goes with a private name": {desired.PrivateURL(privatePort), "https://inside:7443"},
		"a private port alone changes nothing":      {desired.PrivateURL(portOnly), "https://kcp.example.com:443"},
		"a front proxy without an address has the root's": {
			desired.FrontProxyURL(&operatorv1alpha1.FrontProxy{}, root(nil)), "https://kcp.example.com:443"},
		"a deprecated hostname gets the default port": {
			desired.FrontProxyURL(&operatorv1alpha1.FrontProxy{Spec: operatorv1alpha1.FrontProxySpec{ExternalHostname: "old"}}, root(nil)), "https://old:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.have != tc.want {
				t.Errorf("got %s, want %s", tc.have, tc.want)
			}
		})
	}
}

func TestProvidedCAMountOmitsPrivateKey(t *testing.T) {
	withProvidedCA := root(func(r *operatorv1alpha1.RootShard) {
		r.Spec.Certificates.CASecretRef = &corev1.LocalObjectReference{Name: "my-ca"}
	})
	for name, pod := range map[string]corev1.PodSpec{
		"kcp-ca":  deployment(withProvidedCA, desired.Etcd{}).Spec.Template.Spec,
		"root-ca": desired.ProxyDeployment(desired.NewInternalProxy(withProvidedCA), image).Spec.Template.Spec,
	} {
		at := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		if at < 0 {
			t.Fatalf("no volume %s", name)
		}
		secret := pod.Volumes[at].Secret
		if secret.SecretName != "my-ca" || len(secret.Items) != 1 || secret.Items[0].Key != "tls.crt" {
			t.Errorf("volume %s is %+v, want only tls.crt of my-ca", name, secret)
		}
	}
}

func TestTemplatePullSecrets(t *testing.T) {
	deployment := deployment(root(func(r *operatorv1alpha1.RootShard) {
		r.Spec.Image = &operatorv1alpha1.ImageSpec{Tag: "v2", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "a"}}}
		r.Spec.DeploymentTemplate = &operatorv1alpha1.DeploymentTemplate{Spec: &operatorv1alpha1.DeploymentSpecTemplate{Template: &operatorv1alpha1.PodTemplate{
			Metadata: &operatorv1alpha1.TemplateMetadata{Labels: map[string]string{"app.kubernetes.io/name": "mine", "mine": "yes"}},
			Spec:     &operatorv1alpha1.PodSpecTemplate{ImagePullSecrets: []corev1.LocalObjectReference{{Name: "b"}, {Name: "a"}}},
		}}}
	}), desired.Etcd{})
	pod := deployment.Spec.Template
	if got := pod.Spec.ImagePullSecrets; !slices.Equal(got, []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}}) {
		t.Errorf("pull secrets are %v", got)
	}
	if pod.Labels["app.kubernetes.io/name"] != "kcp" || pod.Labels["mine"] != "yes" {
		t.Errorf("labels are %v: the selector's must stay and others be added", pod.Labels)
	}
	if got := pod.Spec.Containers[0].Image; got != "registry.example.com/atoll:v2" {
		t.Errorf("image is %s", got)
	}
	if deployment.Spec.Replicas != nil {
		t.Errorf("replicas are %d, want none", *deployment.Spec.Replicas)
	}
}

func TestRevisions(t *testing.T) {
	secret := func(labels map[string]string, data string) string {
		return desired.SecretRevision(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: labels, ResourceVersion: data}, Data: map[string][]byte{"k": []byte(data)}})
	}
	if secret(nil, "a") == secret(nil, "b") {
		t.Error("a change of content has the same revision")
	}
	if secret(nil, "a") != secret(map[string]string{"x": "y"}, "a") {
		t.Error("a label restarts pods")
	}
	template := &corev1.PodTemplateSpec{}
	desired.LabelRevisions(template, desired.Revisions{Secrets: map[string]string{"root-ca": "1"}, ConfigMaps: map[string]string{"policy": "2"}})
	for key, value := range template.Labels {
		if !strings.HasPrefix(key, "operator.kcp.io/") || !strings.HasSuffix(key, "-rev") || len(value) != 1 {
			t.Errorf("label %s=%s", key, value)
		}
	}
}

func TestParseImage(t *testing.T) {
	for in, want := range map[string]desired.Image{
		"example.com:5000/a/b:v1":    {Repository: "example.com:5000/a/b", Tag: "v1"},
		"example.com/a@sha256:abc":   {Repository: "example.com/a@sha256", Tag: "abc"},
		"example.com:5000/untagged":  {},
		"untagged":                   {},
		"example.com/a:":             {},
		"docker.io/local/atoll:dev":  {Repository: "docker.io/local/atoll", Tag: "dev"},
		"example.com/atoll:1.0_beta": {Repository: "example.com/atoll", Tag: "1.0_beta"},
	} {
		have, err := desired.ParseImage(in)
		if (err != nil) != (want == desired.Image{}) || have != want {
			t.Errorf("%q: got %v, %v", in, have, err)
		}
	}
}

func TestVolumeConflict(t *testing.T) {
	volume := func(name string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	}
	for name, tc := range map[string]struct {
		extras operatorv1alpha1.ContainerExtras
		want   string
	}{
		"nothing added": {},
		"a volume of its own at a place of its own": {operatorv1alpha1.ContainerExtras{
			ExtraVolumes: []corev1.Volume{volume("mine")}, ExtraVolumeMounts: []corev1.VolumeMount{{Name: "mine", MountPath: "/mine"}},
		}, ""},
		"the name of a volume of the operator": {operatorv1alpha1.ContainerExtras{ExtraVolumes: []corev1.Volume{volume("server-ca")}}, "a volume named server-ca is there already"},
		"the place of a volume of the operator": {operatorv1alpha1.ContainerExtras{
			ExtraVolumes: []corev1.Volume{volume("mine")}, ExtraVolumeMounts: []corev1.VolumeMount{{Name: "mine", MountPath: "/etc/kcp/tls/server/"}},
		}, "mounted at /etc/kcp/tls/server already"},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := deployment(root(func(r *operatorv1alpha1.RootShard) { r.Spec.ContainerExtras = tc.extras }), desired.Etcd{})
			have := desired.VolumeConflict(&deployment.Spec.Template.Spec)
			if (have == "") != (tc.want == "") || !strings.Contains(have, tc.want) {
				t.Errorf("got %q, want %q", have, tc.want)
			}
		})
	}
}
