// Package adminauth creates the tokens and the admin.kubeconfig with which developers, or operators of a shard without
// a client CA, authenticate. Tokens exist in memory and in that file only; the digest of the one token that survives
// restarts is stored in a second file.
package adminauth

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/uuid"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// The users of the admin kubeconfig.
const (
	KCPAdmin   = "kcp-admin"
	ShardAdmin = "shard-admin"
	PlainUser  = "user"

	groupKCPAdmin = "system:kcp:admin"
)

// Config configures the paths of the files. WithUser adds the user without groups.
type Config struct {
	KubeconfigPath string
	TokenHashPath  string
	WithUser       bool
}

// Admin holds the tokens of one process.
type Admin struct {
	config                           Config
	kcpAdmin, shardAdmin, plainToken string
	// tokenIsNew is set if shard-admin's token is new and its digest has not been written yet.
	tokenIsNew bool
}

// New creates the tokens. Only shard-admin's is read from the kubeconfig of an earlier start, if there is a file with
// its digest; it returns an error if they do not match.
func New(config Config) (*Admin, error) {
	if config.KubeconfigPath == "" || config.TokenHashPath == "" {
		return nil, fmt.Errorf("--kubeconfig-path and --authentication-admin-token-path are required with battery \"admin\" when --root-directory is empty")
	}
	admin := &Admin{config: config, kcpAdmin: uuid.NewString()}
	if config.WithUser {
		admin.plainToken = uuid.NewString()
	}
	digest, err := os.ReadFile(config.TokenHashPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		admin.shardAdmin, admin.tokenIsNew = uuid.NewString(), true
		return admin, nil
	case err != nil:
		return nil, fmt.Errorf("reading the digest of the %s token: %w", ShardAdmin, err)
	}
	token, err := readToken(config.KubeconfigPath)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, fmt.Errorf("%s has an empty token for %s although %s holds its digest: remove %s to create a new token", config.KubeconfigPath, ShardAdmin, config.TokenHashPath, config.TokenHashPath)
	}
	sum := sha256.Sum256([]byte(token))
	if subtle.ConstantTimeCompare(sum[:], digest) != 1 {
		return nil, fmt.Errorf("the token of %s in %s does not match the digest in %s: remove %s to create a new token", ShardAdmin, config.KubeconfigPath, config.TokenHashPath, config.TokenHashPath)
	}
	admin.shardAdmin = token
	return admin, nil
}

// Tokens returns the users by token.
func (a *Admin) Tokens() map[string]*user.DefaultInfo {
	tokens := map[string]*user.DefaultInfo{
		a.kcpAdmin:   {Name: KCPAdmin, Groups: []string{groupKCPAdmin, user.AllAuthenticated}},
		a.shardAdmin: {Name: ShardAdmin, Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}},
	}
	if a.plainToken != "" {
		tokens[a.plainToken] = &user.DefaultInfo{Name: PlainUser, Groups: []string{user.AllAuthenticated}}
	}
	return tokens
}

// Kubeconfig returns the admin kubeconfig for a server at "host:port" whose certificate chain is ca (PEM).
func (a *Admin) Kubeconfig(host string, ca []byte) *clientcmdapi.Config {
	base := "https://" + host
	cluster := func(server string) *clientcmdapi.Cluster {
		return &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	}
	config := clientcmdapi.NewConfig()
	config.Clusters = map[string]*clientcmdapi.Cluster{
		"root":         cluster(base + logicalcluster.Root.Path().URLPath()),
		"base":         cluster(base),
		"system:admin": cluster(base + logicalcluster.Admin.Path().URLPath()),
	}
	config.AuthInfos = map[string]*clientcmdapi.AuthInfo{
		KCPAdmin:   {Token: a.kcpAdmin},
		ShardAdmin: {Token: a.shardAdmin},
	}
	config.Contexts = map[string]*clientcmdapi.Context{
		"root":         {Cluster: "root", AuthInfo: KCPAdmin},
		"base":         {Cluster: "base", AuthInfo: KCPAdmin},
		"system:admin": {Cluster: "system:admin", AuthInfo: ShardAdmin},
		"shard-base":   {Cluster: "base", AuthInfo: ShardAdmin},
	}
	if a.plainToken != "" {
		config.AuthInfos[PlainUser] = &clientcmdapi.AuthInfo{Token: a.plainToken}
		config.Contexts[PlainUser] = &clientcmdapi.Context{Cluster: "root", AuthInfo: PlainUser}
	}
	config.CurrentContext = "root"
	return config
}

// WriteKubeconfig writes the admin kubeconfig, readable by the owner only, and then the digest of a new token: a crash
// in between leaves a token without digest, which the next start replaces, and never a digest without token.
func (a *Admin) WriteKubeconfig(host string, ca []byte) error {
	raw, err := clientcmd.Write(*a.Kubeconfig(host, ca))
	if err != nil {
		return fmt.Errorf("encoding the admin kubeconfig: %w", err)
	}
	if err := writePrivate(a.config.KubeconfigPath, raw); err != nil {
		return fmt.Errorf("writing the admin kubeconfig: %w", err)
	}
	if !a.tokenIsNew {
		return nil
	}
	sum := sha256.Sum256([]byte(a.shardAdmin))
	if err := writePrivate(a.config.TokenHashPath, sum[:]); err != nil {
		return fmt.Errorf("writing the digest of the %s token: %w", ShardAdmin, err)
	}
	a.tokenIsNew = false
	return nil
}

func readToken(kubeconfig string) (string, error) {
	config, err := clientcmd.LoadFromFile(kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the %s token of an earlier start: %w", ShardAdmin, err)
	}
	if info := config.AuthInfos[ShardAdmin]; info != nil {
		return info.Token, nil
	}
	return "", nil
}

// writePrivate replaces a file atomically: readers see either the old or the new content.
func writePrivate(file string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(file), ".tmp-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	if _, err := temporary.Write(content); err != nil {
		temporary.Close()
		return err
	}
	if err := temporary.Close(); err != nil {
		return err
	}
	return os.Rename(temporary.Name(), file)
}
