package desired_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
	"github.com/atoll-dev/atoll/internal/golden"
)

// fullInstallation is the installation of config/samples/full.
func fullInstallation(t *testing.T) (root *operatorv1alpha1.RootShard, shard *operatorv1alpha1.Shard, dependencies desired.Dependencies) {
	t.Helper()
	root = golden.Sample[operatorv1alpha1.RootShard](t, "full/rootshard.yaml")
	shard = golden.Sample[operatorv1alpha1.Shard](t, "full/shard.yaml")
	return root, shard, desired.Dependencies{
		Cache:            golden.Sample[operatorv1alpha1.CacheServer](t, "full/cacheserver.yaml"),
		VirtualWorkspace: golden.Sample[operatorv1alpha1.VirtualWorkspace](t, "full/virtualworkspace.yaml"),
		TokenKeys:        desired.TokenKeys(root, "root", "alpha", "beta"),
	}
}

var managedEtcd = desired.Etcd{Servers: []string{"https://alpha-etcd-0.alpha-etcd:2379"}, Credentials: "alpha-etcd-client", Owner: "shard/kcp/alpha@11111111-0000-4000-8000-000000000000"}

func minimalShard() *operatorv1alpha1.Shard {
	return &operatorv1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Name: "alpha", Namespace: "kcp", UID: "1"},
		Spec:       operatorv1alpha1.ShardSpec{RootShard: operatorv1alpha1.RootShardReference{Reference: &corev1.LocalObjectReference{Name: "root"}}},
	}
}

func minimalCache() *operatorv1alpha1.CacheServer {
	return &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: "cache", Namespace: "kcp", UID: "1"}}
}

func TestRenderedShards(t *testing.T) {
	root, shard, dependencies := fullInstallation(t)
	minimalRoot := golden.Sample[operatorv1alpha1.RootShard](t, "rootshard_minimal.yaml")
	for name, tc := range map[string]struct {
		shard        desired.Shard
		dependencies desired.Dependencies
	}{
		"minimal_shard": {desired.NewShard(minimalShard(), minimalRoot), desired.Dependencies{}},
		"full_shard":    {desired.NewShard(shard, root), dependencies},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{desired.ShardDeployment(tc.shard, image, managedEtcd, tc.dependencies), desired.ShardService(tc.shard)}
			kubeconfigs, err := desired.ShardKubeconfigs(tc.shard)
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range kubeconfigs {
				objects = append(objects, withStringData(secret))
			}
			golden.Check(t, name, objects...)
		})
	}
}

func TestRenderedCacheServers(t *testing.T) {
	root, _, dependencies := fullInstallation(t)
	for name, tc := range map[string]struct {
		cache  *operatorv1alpha1.CacheServer
		etcd   desired.Etcd
		parent *desired.CacheParent
	}{
		"minimal_cacheserver": {minimalCache(), desired.Etcd{}, nil},
		"full_cacheserver": {
			dependencies.Cache, desired.Etcd{Servers: []string{"https://etcd-0:2379"}, Prefix: "/europe", Credentials: "etcd-client", Owner: desired.NewCacheServer(dependencies.Cache).EtcdOwner("11111111-0000-4000-8000-000000000000")}, desired.ParentRootShard(root),
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := desired.NewCacheServer(tc.cache)
			kubeconfig, err := desired.CacheServerKubeconfig(server)
			if err != nil {
				t.Fatal(err)
			}
			objects := []client.Object{desired.CacheServerDeployment(server, image, tc.etcd, tc.parent), desired.CacheServerService(server), withStringData(kubeconfig)}
			if tc.parent != nil {
				credentials, err := desired.ParentKubeconfigSecret(server, tc.parent)
				if err != nil {
					t.Fatal(err)
				}
				objects = append(objects, withStringData(credentials))
			}
			golden.Check(t, name, objects...)
		})
	}
}

func TestRenderedVirtualWorkspaces(t *testing.T) {
	root, shard, dependencies := fullInstallation(t)
	for name, tc := range map[string]struct {
		virtualWorkspace *operatorv1alpha1.VirtualWorkspace
		target           desired.Shard
		cache            *operatorv1alpha1.CacheServer
	}{
		"full_virtualworkspace":   {dependencies.VirtualWorkspace, desired.NewShard(shard, root), dependencies.Cache},
		"custom_virtualworkspace": {golden.Sample[operatorv1alpha1.VirtualWorkspace](t, "full/virtualworkspace_custom.yaml"), desired.NewRootShard(root), nil},
	} {
		t.Run(name, func(t *testing.T) {
			server := desired.NewVirtualWorkspace(tc.virtualWorkspace, tc.target)
			golden.Check[client.Object](t, name, desired.VirtualWorkspaceDeployment(server, image, tc.cache), desired.VirtualWorkspaceService(server))
		})
	}
}

func TestCacheRef(t *testing.T) {
	ref := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	for title, tc := range map[string]struct {
		root, shard *corev1.LocalObjectReference
		want        string // the Secret of the kubeconfig's volume; "" for none
		flag        string
	}{
		"that of the root shard by default": {nil, nil, "", "--cache-kubeconfig=/etc/kcp/client-kubeconfig/kubeconfig"},
		"that of the installation":          {ref("world"), nil, "world", "--cache-kubeconfig=/etc/cache-server/kubeconfig/kubeconfig"},
		"its own":                           {ref("world"), ref("europe"), "europe", "--cache-kubeconfig=/etc/cache-server/kubeconfig/kubeconfig"},
		"an empty name is ignored":          {ref("world"), ref(""), "world", "--cache-kubeconfig=/etc/cache-server/kubeconfig/kubeconfig"},
	} {
		t.Run(title, func(t *testing.T) {
			shard := minimalShard()
			shard.Spec.Cache.Ref = tc.shard
			desiredShard := desired.NewShard(shard, root(func(r *operatorv1alpha1.RootShard) { r.Spec.Cache.Ref = tc.root }))
			name, _ := desiredShard.CacheRef()
			if name != tc.want {
				t.Errorf("got %q", name)
			}
			dependencies := desired.Dependencies{}
			if name != "" {
				dependencies.Cache = &operatorv1alpha1.CacheServer{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp"}}
			}
			if have := containerArgs(desired.ShardDeployment(desiredShard, image, managedEtcd, dependencies)); !slices.Contains(have, tc.flag) {
				t.Errorf("%s is missing from %q", tc.flag, have)
			}
		})
	}
}

func TestShardCacheClientCertificate(t *testing.T) {
	desiredShard := desired.NewShard(minimalShard(), root(nil))
	mounts := desired.PodMounts(&desired.ShardDeployment(desiredShard, image, managedEtcd, desired.Dependencies{Cache: minimalCache()}).Spec.Template.Spec)
	if !slices.Contains(mounts.Secrets, "alpha-cache-client") || slices.Contains(mounts.Secrets, "cache-client-certificate") {
		t.Errorf("got %v", mounts.Secrets)
	}
}

func TestServiceAccountKeysOfAllShards(t *testing.T) {
	enabled := &operatorv1alpha1.AuthSpec{ServiceAccount: &operatorv1alpha1.ServiceAccountAuthentication{Enabled: true}}
	installation := root(nil)
	shard := minimalShard()
	shard.Spec.Auth = enabled
	front := &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: "kcp"}, Spec: operatorv1alpha1.FrontProxySpec{Auth: enabled}}
	keys := desired.TokenKeys(installation, "root", "alpha", "beta")
	const own, remote = "--service-account-key-file=", "--remote-service-account-key-file="
	for name, tc := range map[string]struct {
		deployment *appsv1.Deployment
		want       []string
	}{
		"a shard has one key for its own logical clusters": {
			desired.ShardDeployment(desired.NewShard(shard, installation), image, managedEtcd, desired.Dependencies{TokenKeys: keys}),
			[]string{own + "/etc/kcp/tls/service-account/tls.crt", remote + "/etc/kcp/tls/root/service-account/tls.crt", remote + "/etc/kcp/tls/beta/service-account/tls.crt"},
		},
		"a front proxy has all, and asks the shards": {
			desired.ProxyDeployment(desired.NewFrontProxy(front, installation, keys...), image),
			[]string{own + "/etc/kcp/tls/root/service-account/tls.crt", own + "/etc/kcp/tls/alpha/service-account/tls.crt", own + "/etc/kcp/tls/beta/service-account/tls.crt"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := containerArgs(tc.deployment)
			flags := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return !strings.HasPrefix(arg, own) && !strings.HasPrefix(arg, remote) })
			if !slices.Equal(flags, tc.want) {
				t.Errorf("got %v", flags)
			}
			if front := strings.HasPrefix(name, "a front proxy"); front && slices.Contains(args, "--service-account-lookup=false") {
				t.Error("tokens are not looked up")
			}
		})
	}
}

func TestLabelsOfFiles(t *testing.T) {
	installation := root(func(r *operatorv1alpha1.RootShard) {
		r.Spec.ClientCABundleRef, r.Spec.CABundleSecretRef = &corev1.LocalObjectReference{Name: "a"}, &corev1.LocalObjectReference{Name: "b"}
	})
	shard, front := desired.NewShard(minimalShard(), installation), &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: "kcp"}}
	rendered := map[string]desired.Server{}
	var err error
	for component, render := range map[string]func() (desired.Server, error){
		"rootshard": func() (desired.Server, error) {
			return desired.NewRootShard(installation).Render(image, managedEtcd, desired.Dependencies{})
		},
		"shard":           func() (desired.Server, error) { return shard.Render(image, managedEtcd, desired.Dependencies{}) },
		"rootshard-proxy": func() (desired.Server, error) { return desired.NewInternalProxy(installation).Render(image) },
		"front-proxy":     func() (desired.Server, error) { return desired.NewFrontProxy(front, installation).Render(image) },
	} {
		if rendered[component], err = render(); err != nil {
			t.Fatal(err)
		}
	}
	for component, server := range rendered {
		files := slices.DeleteFunc(slices.Clone(server.Objects), func(object client.Object) bool { _, isService := object.(*corev1.Service); return isService })
		for _, bundle := range server.Bundles {
			files = append(files, bundle.Secret)
		}
		if len(files) < 3 {
			t.Errorf("%s has %d files", component, len(files))
		}
		for _, file := range files {
			if labels := file.GetLabels(); labels[operatorv1alpha1.LabelRootShard] != "root" || labels["app.kubernetes.io/component"] != component || labels["app.kubernetes.io/instance"] == "" {
				t.Errorf("%s has the labels %v", file.GetName(), labels)
			}
		}
	}
}

func TestImageOfTheInternalProxy(t *testing.T) {
	ofShard := &operatorv1alpha1.ImageSpec{Repository: "mirror.example.com/atoll", Tag: "v2", ImagePullSecrets: []corev1.LocalObjectReference{{Name: "mirror"}}}
	for name, tc := range map[string]struct {
		shard   *operatorv1alpha1.ImageSpec
		proxy   *operatorv1alpha1.RootShardProxySpec
		want    string
		secrets int
	}{
		"is the default of the operator":               {nil, nil, image.String(), 0},
		"is that of the shard, with its pull secrets":  {ofShard, nil, "mirror.example.com/atoll:v2", 1},
		"is that of the shard beside other settings":   {ofShard, &operatorv1alpha1.RootShardProxySpec{Replicas: ptr.To[int32](1)}, "mirror.example.com/atoll:v2", 1},
		"is its own where it is set, and nothing else": {ofShard, &operatorv1alpha1.RootShardProxySpec{Image: &operatorv1alpha1.ImageSpec{Tag: "v1"}}, "registry.example.com/atoll:v1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := golden.Sample[operatorv1alpha1.RootShard](t, "rootshard_minimal.yaml")
			root.Spec.Image, root.Spec.Proxy = tc.shard, tc.proxy
			pod := desired.ProxyDeployment(desired.NewInternalProxy(root), image).Spec.Template.Spec
			if got := pod.Containers[0].Image; got != tc.want || len(pod.ImagePullSecrets) != tc.secrets {
				t.Errorf("got %s, with the pull secrets %v", got, pod.ImagePullSecrets)
			}
		})
	}
}

func TestCacheServerReplicas(t *testing.T) {
	for name, tc := range map[string]struct {
		spec operatorv1alpha1.CacheServerSpec
		want *int32
	}{
		"an embedded store belongs to one pod":      {operatorv1alpha1.CacheServerSpec{}, ptr.To[int32](1)},
		"for any number of replicas in the spec":    {operatorv1alpha1.CacheServerSpec{Replicas: ptr.To[int32](3)}, ptr.To[int32](1)},
		"or to none":                                {operatorv1alpha1.CacheServerSpec{Replicas: ptr.To[int32](0)}, ptr.To[int32](0)},
		"with an etcd an autoscaler may choose":     {operatorv1alpha1.CacheServerSpec{Etcd: &operatorv1alpha1.EtcdConfig{}}, nil},
		"with an etcd there are as many as one has": {operatorv1alpha1.CacheServerSpec{Etcd: &operatorv1alpha1.EtcdConfig{}, Replicas: ptr.To[int32](3)}, ptr.To[int32](3)},
	} {
		t.Run(name, func(t *testing.T) {
			cache := minimalCache()
			cache.Spec = tc.spec
			have := desired.CacheServerDeployment(desired.NewCacheServer(cache), image, managedEtcd, nil).Spec.Replicas
			if (have == nil) != (tc.want == nil) || (have != nil && *have != *tc.want) {
				t.Errorf("got %v", ptr.Deref(have, -1))
			}
		})
	}
}

func TestMergedResources(t *testing.T) {
	quantity := func(s string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(s)}
	}
	for name, tc := range map[string]struct {
		spec           corev1.ResourceRequirements
		request, limit string
	}{
		"to nothing":                         {corev1.ResourceRequirements{}, "1Gi", "2Gi"},
		"to a limit below the request":       {corev1.ResourceRequirements{Limits: quantity("512Mi")}, "512Mi", "512Mi"},
		"to a request above the limit":       {corev1.ResourceRequirements{Requests: quantity("4Gi")}, "4Gi", "4Gi"},
		"to a limit above the request alone": {corev1.ResourceRequirements{Limits: quantity("4Gi")}, "1Gi", "4Gi"},
		"to both":                            {corev1.ResourceRequirements{Requests: quantity("3Gi"), Limits: quantity("3Gi")}, "3Gi", "3Gi"},
	} {
		t.Run(name, func(t *testing.T) {
			shard := minimalShard()
			shard.Spec.Resources = &tc.spec
			have := desired.ShardDeployment(desired.NewShard(shard, root(nil)), image, managedEtcd, desired.Dependencies{}).Spec.Template.Spec.Containers[0].Resources
			if request, limit := have.Requests.Memory().String(), have.Limits.Memory().String(); request != tc.request || limit != tc.limit {
				t.Errorf("got %s and %s", request, limit)
			}
		})
	}
}

func TestCustomVirtualWorkspaceCredentials(t *testing.T) {
	virtualWorkspace := golden.Sample[operatorv1alpha1.VirtualWorkspace](t, "full/virtualworkspace_custom.yaml")
	pod := desired.VirtualWorkspaceDeployment(desired.NewVirtualWorkspace(virtualWorkspace, desired.NewRootShard(root(nil))), image, nil).Spec.Template.Spec
	for _, secret := range desired.PodMounts(&pod).Secrets {
		if strings.Contains(secret, "admin") || strings.HasSuffix(secret, "-client") {
			t.Errorf("Secret %s is mounted", secret)
		}
	}
	if conflict := desired.VolumeConflict(&pod); conflict != "" {
		t.Error(conflict)
	}
	if pod.Containers[0].ReadinessProbe != nil || !slices.Equal(pod.Containers[0].Command, []string{"/catalogue", "serve"}) {
		t.Errorf("command %v, probe %v", pod.Containers[0].Command, pod.Containers[0].ReadinessProbe)
	}
}

func TestTopologySpread(t *testing.T) {
	constraints := func(template *operatorv1alpha1.PodSpecTemplate) []string {
		shard := minimalShard()
		shard.Spec.DeploymentTemplate = &operatorv1alpha1.DeploymentTemplate{Spec: &operatorv1alpha1.DeploymentSpecTemplate{Template: &operatorv1alpha1.PodTemplate{Spec: template}}}
		var keys []string
		for _, constraint := range desired.ShardDeployment(desired.NewShard(shard, root(nil)), image, managedEtcd, desired.Dependencies{}).Spec.Template.Spec.TopologySpreadConstraints {
			if constraint.WhenUnsatisfiable != corev1.ScheduleAnyway {
				t.Errorf("%s is a requirement", constraint.TopologyKey)
			}
			keys = append(keys, constraint.TopologyKey)
		}
		return keys
	}
	both := []string{corev1.LabelHostname, corev1.LabelTopologyZone}
	custom := corev1.TopologySpreadConstraint{TopologyKey: "rack", MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway}
	for name, tc := range map[string]struct {
		template *operatorv1alpha1.PodSpecTemplate
		want     []string
	}{
		"by themselves":                        {nil, both},
		"with other fields of a template":      {&operatorv1alpha1.PodSpecTemplate{Affinity: &corev1.Affinity{}}, both},
		"as a template sets":                   {&operatorv1alpha1.PodSpecTemplate{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{custom}}, []string{"rack"}},
		"not with an empty list in a template": {&operatorv1alpha1.PodSpecTemplate{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if have := constraints(tc.template); !slices.Equal(have, tc.want) {
				t.Errorf("got %v", have)
			}
		})
	}
}

func TestReachesAllShardsAs(t *testing.T) {
	for name, tc := range map[string]struct {
		spec operatorv1alpha1.FrontProxySpec
		all  bool
	}{
		"all workspaces":                                     {operatorv1alpha1.FrontProxySpec{}, true},
		"all of them while others are dropped":               {operatorv1alpha1.FrontProxySpec{Auth: &operatorv1alpha1.AuthSpec{DropGroups: []string{"system:masters"}}}, true},
		"all of them where its group is passed on":           {operatorv1alpha1.FrontProxySpec{Auth: &operatorv1alpha1.AuthSpec{PassOnGroups: []string{"system:kcp:*"}}}, true},
		"nothing where its group is dropped":                 {operatorv1alpha1.FrontProxySpec{Auth: &operatorv1alpha1.AuthSpec{DropGroups: []string{"system:*"}}}, false},
		"nothing where others are passed on":                 {operatorv1alpha1.FrontProxySpec{Auth: &operatorv1alpha1.AuthSpec{PassOnGroups: []string{"team"}}}, false},
		"not those of shards that the proxy is not for":      {operatorv1alpha1.FrontProxySpec{ContainerExtras: operatorv1alpha1.ContainerExtras{ExtraArgs: []string{"--shards=alpha"}}}, false},
		"not those of shards that the proxy does not select": {operatorv1alpha1.FrontProxySpec{ContainerExtras: operatorv1alpha1.ContainerExtras{ExtraArgs: []string{"--shard-selector", "region=x"}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			front := &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: "kcp"}, Spec: tc.spec}
			if have := desired.NewFrontProxy(front, root(nil)).ReachesAllShardsAs("system:kcp:admin"); have != tc.all {
				t.Errorf("got %v", have)
			}
		})
	}
}

func TestSharedIndexCredentials(t *testing.T) {
	tls := func(name string) operatorv1alpha1.SharedIndexClient {
		return operatorv1alpha1.SharedIndexClient{TLSConfig: &operatorv1alpha1.EtcdTLSConfig{SecretRef: corev1.LocalObjectReference{Name: name}}}
	}
	own := tls("own")
	withSharedIndex := root(func(r *operatorv1alpha1.RootShard) {
		r.Spec.SharedIndex = &operatorv1alpha1.SharedIndexConfig{Endpoints: []string{"https://a:2379", "https://b:2379"}, SharedIndexClient: tls("all")}
	})
	shard := minimalShard()
	shard.Spec.SharedIndex = &own
	front := &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: "kcp"}}
	frontOwn := front.DeepCopy()
	frontOwn.Spec.SharedIndex = &own
	for name, tc := range map[string]struct {
		deployment *appsv1.Deployment
		secret     string
	}{
		"the root shard those of the installation":     {deployment(withSharedIndex, desired.Etcd{}), "all"},
		"a shard those of the installation":            {desired.ShardDeployment(desired.NewShard(minimalShard(), withSharedIndex), image, managedEtcd, desired.Dependencies{}), "all"},
		"a shard its own":                              {desired.ShardDeployment(desired.NewShard(shard, withSharedIndex), image, managedEtcd, desired.Dependencies{}), "own"},
		"a front proxy those of the installation":      {desired.ProxyDeployment(desired.NewFrontProxy(front, withSharedIndex), image), "all"},
		"a front proxy its own":                        {desired.ProxyDeployment(desired.NewFrontProxy(frontOwn, withSharedIndex), image), "own"},
		"the internal proxy those of the installation": {desired.ProxyDeployment(desired.NewInternalProxy(withSharedIndex), image), "all"},
		"none without an index":                        {desired.ShardDeployment(desired.NewShard(shard, root(nil)), image, managedEtcd, desired.Dependencies{}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			has := slices.Contains(containerArgs(tc.deployment), "--shared-index-etcd-servers=https://a:2379,https://b:2379")
			secrets := desired.PodMounts(&tc.deployment.Spec.Template.Spec).Secrets
			if has != (tc.secret != "") || has && !slices.Contains(secrets, tc.secret) {
				t.Errorf("the flag is there: %v; Secrets are %v", has, secrets)
			}
		})
	}
}

// TestLongNamesOfVolumes: pods refuse names of volumes that the names of Secrets of an installation may have.
func TestLongNamesOfVolumes(t *testing.T) {
	for _, name := range []string{strings.Repeat("r", 40), "with.dots"} {
		root := &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kcp"}}
		front := &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("f", 40), Namespace: "kcp"}}
		for _, proxy := range []desired.Proxy{desired.NewInternalProxy(root), desired.NewFrontProxy(front, root)} {
			pod := desired.ProxyDeployment(proxy, image).Spec.Template.Spec
			seen := map[string]bool{}
			for i := range pod.Volumes {
				volume := pod.Volumes[i].Name
				if problems := validation.IsDNS1123Label(volume); len(problems) > 0 || seen[volume] {
					t.Errorf("volume %s of %s: %q, seen before: %v", volume, name, problems, seen[volume])
				}
				seen[volume] = true
			}
			for _, mount := range pod.Containers[0].VolumeMounts {
				if !seen[mount.Name] {
					t.Errorf("%s mounts volume %s, which does not exist", name, mount.Name)
				}
			}
		}
	}
}
