package transfer

import (
	"bytes"
	"crypto/aes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	encryptaes "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
)

// encryption encrypts secrets with a named provider, and no other resource.
type encryption struct{ secrets value.Transformer }

func (e encryption) TransformerForResource(resource schema.GroupResource) value.Transformer {
	if resource == (schema.GroupResource{Resource: "secrets"}) {
		return e.secrets
	}
	return identity.NewEncryptCheckTransformer()
}

func gcm(t testing.TB, name string) value.ResourceTransformers {
	block, err := aes.NewCipher(bytes.Repeat([]byte(name), 32))
	if err != nil {
		t.Fatal(err)
	}
	transformer, err := encryptaes.NewGCMTransformer(block)
	if err != nil {
		t.Fatal(err)
	}
	return encryption{value.NewPrefixTransformers(nil, value.PrefixTransformer{Prefix: []byte("k8s:enc:aesgcm:v1:" + name + ":"), Transformer: transformer})}
}

func box(name string) value.ResourceTransformers {
	return encryption{value.NewPrefixTransformers(nil, value.PrefixTransformer{
		Prefix: []byte("k8s:enc:secretbox:v1:" + name + ":"), Transformer: secretbox.NewSecretboxTransformer([32]byte([]byte(strings.Repeat(name, 32)))),
	})}
}

func testEncryption(t *testing.T) {
	const aesA, aesB, secretboxB = "k8s:enc:aesgcm:v1:a:", "k8s:enc:aesgcm:v1:b:", "k8s:enc:secretbox:v1:b:"
	for name, tc := range map[string]struct {
		from, to           value.ResourceTransformers
		atOrigin, atTarget string
	}{
		"two keys":                      {gcm(t, "a"), gcm(t, "b"), aesA, aesB},
		"two ciphers":                   {gcm(t, "a"), box("b"), aesA, secretboxB},
		"encrypted at the origin":       {gcm(t, "a"), nil, aesA, ""},
		"encrypted at the destination":  {nil, box("b"), "", secretboxB},
		"encrypted at none of the both": {nil, nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := newShard(t, origin, tc.from), newShard(t, destination, tc.to)
			const content, visible = "of a secret", "of a config map"
			from.put(t, moving, secrets, "default/s", content)
			from.put(t, moving, configMaps, "default/c", visible)
			isStored := func(in *shard, key, prefix, content string) {
				t.Helper()
				stored := in.raw(t, key)[key]
				if !strings.HasPrefix(stored, prefix) || (prefix == "") != strings.Contains(stored, content) {
					t.Errorf("%s is %q", key, stored)
				}
			}
			isStored(from, "/core/secrets/moving/default/s", tc.atOrigin, content)
			copyAll(t, from, to)
			if got := difference(t, from, to); got != "" {
				t.Error(got)
			}
			isStored(to, "/core/secrets/moving/default/s", tc.atTarget, content)
			isStored(to, "/core/configmaps/moving/default/c", "", visible)
			entries, _, err := to.Read(t.Context(), moving, []Key{{secrets, "default/s"}, {configMaps, "default/c"}}, 0)
			if err != nil || len(entries) != 2 || string(entries[0].Value) != content || string(entries[1].Value) != visible {
				t.Errorf("the destination reads %v, %v", entries, err)
			}
			if tc.from != nil && tc.to != nil { // a shard cannot read what another has encrypted
				copied := newShard(t, origin, tc.to)
				copied.prefix = from.prefix
				if _, err := copied.Follow(t.Context(), moving, Key{}); err == nil || strings.Contains(err.Error(), content) {
					t.Errorf("got error %v", err)
				}
			}
		})
	}
}
