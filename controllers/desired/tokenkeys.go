package desired

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

// TokenKey is a key pair with which a shard signs tokens of service accounts, or did so before a re-keying, or will after it.
type TokenKey struct {
	Shard      string // the RootShard or Shard
	Generation int32
}

// Secret is the name of the Secret with the key pair, and of its Certificate.
func (k TokenKey) Secret() string { return k.Shard + "-" + k.file() }

// file is the key's part of the name.
func (k TokenKey) file() string { return ofGeneration(string(ServiceAccountKeys), k.Generation) }

// ParseTokenKey returns the key whose Secret has a name.
func ParseTokenKey(secret string) (TokenKey, bool) {
	first, generation := secret, int64(firstGeneration)
	if at := strings.LastIndexByte(secret, '-'); at > 0 {
		if number, err := strconv.ParseInt(secret[at+1:], 10, 32); err == nil {
			first, generation = secret[:at], number
		}
	}
	key := TokenKey{strings.TrimSuffix(first, "-"+string(ServiceAccountKeys)), int32(generation)}
	return key, key.Shard != "" && key.Secret() == secret
}

// TokenKeys are the keys of shards whose tokens servers accept: of two generations while both are accepted.
func TokenKeys(root *operatorv1alpha1.RootShard, shards ...string) []TokenKey {
	var out []TokenKey
	for _, shard := range shards {
		for _, generation := range generationsOf(root, ServiceAccountKeys).trusted {
			out = append(out, TokenKey{shard, generation})
		}
	}
	return out
}

// PendingTokenKey is the next key of a shard that no server accepts yet because some shard has none, or nil.
func PendingTokenKey(root *operatorv1alpha1.RootShard, shard string) *TokenKey {
	if pending := generationsOf(root, ServiceAccountKeys).pending; pending != 0 {
		return &TokenKey{shard, pending}
	}
	return nil
}

// addOwnTokenKeys sets the flags with the keys of a shard: those that it accepts, and the one that it signs with. The first generation has
// paths that users may know. An installation that has only ever had that one has no flag with generations, which older servers do not know.
func (s Shard) addOwnTokenKeys(c *commandLine) {
	in := generationsOf(s.root, ServiceAccountKeys)
	var numbers []string
	for _, key := range TokenKeys(s.root, s.Name()) {
		c.addFlag("service-account-key-file", ownTokenKeyDir(key)+"/tls.crt")
		numbers = append(numbers, strconv.Itoa(int(key.Generation)))
	}
	if hasRekeyed(s.root, ServiceAccountKeys) {
		c.addFlag("service-account-key-generations", strings.Join(numbers, ","))
	}
	c.addFlag("service-account-private-key-file", ownTokenKeyDir(TokenKey{s.Name(), in.signing})+"/tls.key")
}

// mountOwnTokenKeys mounts the keys of a shard. It accepts tokens by the public part of the one that it does not sign with.
func (s Shard) mountOwnTokenKeys(c *commandLine) {
	signing := generationsOf(s.root, ServiceAccountKeys).signing
	for _, key := range TokenKeys(s.root, s.Name()) {
		volume := caVolume
		if key.Generation == signing {
			volume = secretVolume
		}
		c.addMount(volume(key.file()+"-cert", key.Secret()), ownTokenKeyDir(key))
	}
}

// ownTokenKeyDir is beside the directory of certificates, which has those of other shards by their names, unless it is that of the first
// generation.
func ownTokenKeyDir(key TokenKey) string {
	if key.Generation <= firstGeneration {
		return shardTLS + "/" + key.file()
	}
	return shardDir + "/" + key.file()
}

func tokenKeyDir(key TokenKey) string { return shardTLS + "/" + key.Shard + "/" + key.file() }

// isTokenKeyDir reports whether a path is where a TokenKey is mounted.
func isTokenKeyDir(dir string) bool {
	_, ok := ParseTokenKey("shard-" + path.Base(dir))
	return ok && strings.HasPrefix(dir, shardDir+"/")
}

// ForeignTokenKeys returns the flags of the pods of a shard that name a key of its tokens that is not of the operator. It has no generation, so a
// re-keying would neither replace nor retire it.
func ForeignTokenKeys(template *corev1.PodTemplateSpec) []string {
	var out []string
	for i := range template.Spec.Containers {
		for _, arg := range template.Spec.Containers[i].Args {
			name, file, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			name = strings.ReplaceAll(name, "_", "-") // as servers read it
			if (name == "service-account-key-file" || name == "service-account-private-key-file") && !isTokenKeyDir(path.Dir(file)) {
				out = append(out, "--"+name)
			}
		}
	}
	return slices.Compact(out)
}

// addTokenKeys sets a flag, once for each key of service account tokens, to the file with its public part, if the spec enables service
// accounts.
func (c *commandLine) addTokenKeys(flag string, spec *operatorv1alpha1.AuthSpec, keys []TokenKey) {
	if !acceptsServiceAccounts(spec) {
		return
	}
	for _, key := range keys {
		c.addFlag(flag, tokenKeyDir(key)+"/tls.crt")
		c.addMount(caVolume(volumeName(key.Secret(), tokenKeyDir(key)), key.Secret()), tokenKeyDir(key))
	}
}

func acceptsServiceAccounts(spec *operatorv1alpha1.AuthSpec) bool {
	return spec != nil && spec.ServiceAccount != nil && spec.ServiceAccount.Enabled
}

// AcceptsTokens reports whether a proxy accepts tokens of service accounts.
func (p Proxy) AcceptsTokens() bool {
	return p.front != nil && acceptsServiceAccounts(p.front.Spec.Auth)
}

// trusts is what a proxy accepts of what can be re-keyed.
func (p Proxy) trusts() []CA {
	if p.AcceptsTokens() {
		return Rekeyable()
	}
	return RekeyableCAs()
}

// CheckTokenKeys returns why the pods of a template do not accept the tokens of shards as recorded, or "". Pods that have no key of a shard do
// not accept its tokens, or do not know the shard yet: a re-keying changes nothing of that.
func CheckTokenKeys(template *corev1.PodTemplateSpec, root *operatorv1alpha1.RootShard, shards []string) string {
	mounted := map[string][]string{} // by shard
	for _, secret := range PodMounts(&template.Spec).Secrets {
		if key, ok := ParseTokenKey(secret); ok {
			mounted[key.Shard] = append(mounted[key.Shard], secret)
		}
	}
	for _, shard := range shards {
		have := mounted[shard]
		var want []string
		for _, key := range TokenKeys(root, shard) {
			want = append(want, key.Secret())
		}
		if slices.Sort(want); len(have) > 0 && !slices.Equal(have, want) {
			return fmt.Sprintf("it mounts %s, and is to mount %s", strings.Join(have, ", "), strings.Join(want, ", "))
		}
	}
	return ""
}
