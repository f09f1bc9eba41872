package options

import "github.com/spf13/pflag"

// unusedOptions are values of flags without effect.
type unusedOptions struct {
	shardKubeconfig, externalHostname, mountCert, mountKey string
	tokenSyncs                                             int
}

// addUnusedFlags registers flags of kcp that have no effect here, because the server does not need them. They are
// deprecated, so that their use is reported.
func (o *Options) addUnusedFlags(fs *pflag.FlagSet) {
	u := &o.unused
	fs.StringVar(&u.shardKubeconfig, "shard-kubeconfig-file", "", "Credentials for other shards.")
	fs.StringVar(&u.externalHostname, "external-hostname", "", "Hostname of the shard.")
	fs.StringVar(&u.mountCert, "mount-proxy-client-cert-file", "", "Client certificate for mounted workspaces.")
	fs.StringVar(&u.mountKey, "mount-proxy-client-key-file", "", "Key of --mount-proxy-client-cert-file.")
	fs.IntVar(&u.tokenSyncs, "concurrent-serviceaccount-token-syncs", 0, "Number of service account tokens that are created concurrently.")
	for name, why := range map[string]string{
		"shard-kubeconfig-file":                 "shards do not write to each other",
		"external-hostname":                     "--shard-base-url determines the address",
		"mount-proxy-client-cert-file":          "the front proxy forwards requests to mounted workspaces, not the shard",
		"mount-proxy-client-key-file":           "the front proxy forwards requests to mounted workspaces, not the shard",
		"concurrent-serviceaccount-token-syncs": "controllers of all logical clusters share their workers",
	} {
		if err := fs.MarkDeprecated(name, "it has no effect here: "+why); err != nil {
			panic(err) // the flag is registered above
		}
	}
}
