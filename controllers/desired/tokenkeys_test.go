package desired_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/desired"
)

// TestTokenKeyPhases checks what each phase of a re-keying of the service account keys renders: what a shard signs with and accepts for its own
// logical clusters, and what it and a front proxy know of other shards.
func TestTokenKeyPhases(t *testing.T) {
	const dir = "/etc/kcp/tls/"
	first, second := dir+"service-account/tls.", "/etc/kcp/service-account-2/tls."
	for name, tc := range map[string]struct {
		state       *operatorv1alpha1.CertificateAuthorityStatus
		signs       string
		accepts     []string
		generations string
		ofRoot      []string // directories of the root shard's keys at others
		trust       string
	}{
		"without a record":         {nil, first, []string{first}, "", []string{"service-account"}, ""},
		"some shard has no key":    {unissued(caState("TrustBoth", 1, 2)), first, []string{first}, "", []string{"service-account"}, ""},
		"both are accepted":        {caState("TrustBoth", 1, 2), first, []string{first, second}, "1,2", []string{"service-account", "service-account-2"}, "trusts 1 and 2, has 1"},
		"the new one signs":        {caState("Issue", 1, 2), second, []string{first, second}, "1,2", []string{"service-account", "service-account-2"}, "trusts 1 and 2, has 2"},
		"the previous one is gone": {caState("Retire", 1, 2), second, []string{second}, "2", []string{"service-account-2"}, "trusts 2, has 2"},
		"after a re-keying":        {caState("Stable", 2, 0), second, []string{second}, "2", []string{"service-account-2"}, "trusts 2, has 2"},
	} {
		t.Run(name, func(t *testing.T) {
			installation := withTokenKeys(tc.state)
			auth := &operatorv1alpha1.AuthSpec{ServiceAccount: &operatorv1alpha1.ServiceAccountAuthentication{Enabled: true}}
			shard := minimalShard()
			shard.Spec.Auth = auth
			front := &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: "front", Namespace: "kcp"}, Spec: operatorv1alpha1.FrontProxySpec{Auth: auth}}
			keys := desired.TokenKeys(installation, "root", "alpha")
			ofShard := desired.ShardDeployment(desired.NewShard(shard, installation), image, managedEtcd, desired.Dependencies{TokenKeys: keys})
			ofProxy := desired.ProxyDeployment(desired.NewFrontProxy(front, installation, keys...), image)
			if got := flagValues(ofShard, "service-account-private-key-file"); !slices.Equal(got, []string{tc.signs + "key"}) {
				t.Errorf("the shard signs with %v", got)
			}
			if got := flagValues(ofShard, "service-account-key-file"); !slices.Equal(got, suffixed(tc.accepts, "crt")) {
				t.Errorf("the shard accepts %v", got)
			}
			if got := strings.Join(flagValues(ofShard, "service-account-key-generations"), " "); got != tc.generations {
				t.Errorf("the generations are %q", got)
			}
			var remote, all []string
			for _, key := range tc.ofRoot {
				remote, all = append(remote, dir+"root/"+key+"/tls.crt"), append(all, dir+"root/"+key+"/tls.crt")
			}
			for _, key := range tc.ofRoot {
				all = append(all, dir+"alpha/"+key+"/tls.crt")
			}
			if got := flagValues(ofShard, "remote-service-account-key-file"); !slices.Equal(got, remote) {
				t.Errorf("of others the shard knows %v", got)
			}
			if got := flagValues(ofProxy, "service-account-key-file"); !slices.Equal(got, all) {
				t.Errorf("the proxy knows %v", got)
			}
			for kind, deployment := range map[string]*appsv1.Deployment{"shard": ofShard, "proxy": ofProxy} {
				checkMounted(t, kind, deployment)
				if got := desired.LiveCATrust(&deployment.Spec.Template, desired.ServiceAccountKeys); got != tc.trust {
					t.Errorf("the pods of the %s say %q", kind, got)
				}
				if got := desired.CheckTokenKeys(&deployment.Spec.Template, installation, []string{"root", "alpha"}); got != "" {
					t.Errorf("the pods of the %s: %s", kind, got)
				}
			}
			if got := desired.LiveSigner(&ofShard.Spec.Template, desired.ServiceAccountKeys); (got == 2) != (tc.signs == second) {
				t.Errorf("the pods tell that generation %d signs", got)
			}
			for kind, server := range renderAll(t, installation) { // the proxy does not enable service accounts
				if got := desired.LiveCATrust(&server.Deployment.Spec.Template, desired.ServiceAccountKeys); got != "" && !strings.HasSuffix(kind, "Shard") {
					t.Errorf("the pods of the %s, which accepts no tokens, say %q", kind, got)
				}
			}
		})
	}
}

// TestCheckTokenKeys: pods rendered from an earlier record, or without the key of a shard, are found.
func TestCheckTokenKeys(t *testing.T) {
	stable, both, retire := withTokenKeys(nil), withTokenKeys(caState("TrustBoth", 1, 2)), withTokenKeys(caState("Retire", 1, 2))
	shards := []string{"root", "alpha", "beta"}
	render := func(from *operatorv1alpha1.RootShard, keys ...desired.TokenKey) *appsv1.Deployment {
		shard := minimalShard()
		shard.Spec.Auth = &operatorv1alpha1.AuthSpec{ServiceAccount: &operatorv1alpha1.ServiceAccountAuthentication{Enabled: true}}
		return desired.ShardDeployment(desired.NewShard(shard, from), image, managedEtcd, desired.Dependencies{TokenKeys: keys})
	}
	for name, tc := range map[string]struct {
		live   *appsv1.Deployment
		record *operatorv1alpha1.RootShard
		want   string
	}{
		"all keys":                      {render(both, desired.TokenKeys(both, shards...)...), both, ""},
		"a shard that is not known yet": {render(both, desired.TokenKeys(both, "root", "alpha")...), both, ""},
		"no keys of others":             {render(both), both, ""},
		"before the record": {
			render(stable, desired.TokenKeys(stable, shards...)...), both, "it mounts root-service-account, and is to mount root-service-account, root-service-account-2",
		},
		"the next key of a shard is missing": {
			render(both, append(desired.TokenKeys(both, "root"), desired.TokenKey{Shard: "beta", Generation: 1})...), both,
			"it mounts beta-service-account, and is to mount beta-service-account, beta-service-account-2",
		},
		"a retired key": {
			render(both, desired.TokenKeys(both, shards...)...), retire, "it mounts root-service-account, root-service-account-2, and is to mount root-service-account-2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := desired.CheckTokenKeys(&tc.live.Spec.Template, tc.record, shards); got != tc.want {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestForeignTokenKeys: keys of extraArgs are found, and those that the operator sets in any phase are none.
func TestForeignTokenKeys(t *testing.T) {
	for name, tc := range map[string]struct {
		extraArgs []string
		want      []string
	}{
		"none":                     {[]string{"--logging-format=text", "--service-account-max-token-expiration=1h"}, nil},
		"a key that signs":         {[]string{"--service-account-private-key-file=/own/sa.key"}, []string{"--service-account-private-key-file"}},
		"further keys to accept":   {[]string{"--service_account_key_file", "/own/a.pub", "--service-account-key-file=/own/b.pub"}, []string{"--service-account-key-file"}},
		"both":                     {[]string{"--service-account-private-key-file=/own/sa.key", "--service-account-key-file=/own/sa.pub"}, []string{"--service-account-private-key-file", "--service-account-key-file"}},
		"keys of the other shards": {[]string{"--remote-service-account-key-file=/own/a.pub"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, phase := range []operatorv1alpha1.CertificateAuthorityPhase{"TrustBoth", "Issue", "Retire"} {
				installation, shard := withTokenKeys(caState(phase, 1, 2)), minimalShard()
				shard.Spec.ExtraArgs = tc.extraArgs
				live := desired.ShardDeployment(desired.NewShard(shard, installation), image, managedEtcd, desired.Dependencies{})
				if got := desired.ForeignTokenKeys(&live.Spec.Template); !slices.Equal(got, tc.want) {
					t.Errorf("%s: got %q", phase, got)
				}
			}
		})
	}
}

func TestParseTokenKey(t *testing.T) {
	for name, want := range map[string]desired.TokenKey{
		"alpha-service-account":             {Shard: "alpha", Generation: 1},
		"alpha-service-account-2":           {Shard: "alpha", Generation: 2},
		"a-2-service-account-9999":          {Shard: "a-2", Generation: 9999},
		"x-service-account-service-account": {Shard: "x-service-account", Generation: 1},
	} {
		if got, ok := desired.ParseTokenKey(name); !ok || got != want || got.Secret() != name {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
	for _, name := range []string{
		"", "-", "service-account", "-service-account", "service-account-2", "alpha-service-account-", "alpha-service-account-1", "alpha-service-account-0",
		"alpha-service-account-02", "alpha-service-account--2", "alpha-service-account-x", "root-service-account-ca", "alpha-service-account-99999999999",
	} {
		if key, ok := desired.ParseTokenKey(name); ok {
			t.Errorf("%q is %+v", name, key)
		}
	}
}

// withTokenKeys returns RootShard root, of which the service account keys have a state.
func withTokenKeys(state *operatorv1alpha1.CertificateAuthorityStatus) *operatorv1alpha1.RootShard {
	return root(func(r *operatorv1alpha1.RootShard) {
		if state != nil {
			state.Name = operatorv1alpha1.ServiceAccountKeys
			r.Status.Certificates = &operatorv1alpha1.CertificatesStatus{CAs: []operatorv1alpha1.CertificateAuthorityStatus{*state}}
		}
	})
}

func suffixed(values []string, suffix string) []string {
	var out []string
	for _, value := range values {
		out = append(out, value+suffix)
	}
	return out
}

func flagValues(deployment *appsv1.Deployment, flag string) []string {
	var out []string
	for _, arg := range containerArgs(deployment) {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			out = append(out, value)
		}
	}
	return out
}

// checkMounted: each file with a key is mounted; the private key only of the one that signs.
func checkMounted(t *testing.T, kind string, deployment *appsv1.Deployment) {
	t.Helper()
	pod := deployment.Spec.Template.Spec
	signing := flagValues(deployment, "service-account-private-key-file")
	for _, file := range slices.Concat(flagValues(deployment, "service-account-key-file"), flagValues(deployment, "remote-service-account-key-file"), signing) {
		dir := file[:strings.LastIndexByte(file, '/')]
		found := false
		for _, mount := range pod.Containers[0].VolumeMounts {
			for _, volume := range pod.Volumes {
				if mount.MountPath == dir && mount.Name == volume.Name {
					found = true
					if private := volume.Secret.Items == nil; private != slices.Contains(signing, dir+"/tls.key") {
						t.Errorf("%s: %s has the private key: %t", kind, dir, private)
					}
				}
			}
		}
		if !found {
			t.Errorf("%s: %s is not mounted", kind, dir)
		}
	}
}
