package connection

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Session is the kubeconfig that a command uses, with the files to write it back to.
type Session struct {
	// Kubeconfig is the merged content of all files. Its current-context is the one in effect, --context included. It
	// is read-only; Save takes a changed copy.
	Kubeconfig *clientcmdapi.Config

	files     clientcmd.ConfigAccess
	overrides clientcmd.ConfigOverrides
	config    *rest.Config
}

// Open loads the kubeconfig. It fails when the context in effect does not exist or is invalid; it sends no request to
// the server.
func (f *Flags) Open() (*Session, error) {
	files := clientcmd.NewDefaultClientConfigLoadingRules()
	files.ExplicitPath = f.kubeconfig
	kubeconfig, err := files.Load()
	if err != nil {
		return nil, fmt.Errorf("loading the kubeconfig: %w", err)
	}
	if f.overrides.CurrentContext != "" {
		kubeconfig.CurrentContext = f.overrides.CurrentContext
	}
	return newSession(kubeconfig, files, f.overrides)
}

func newSession(kubeconfig *clientcmdapi.Config, files clientcmd.ConfigAccess, overrides clientcmd.ConfigOverrides) (*Session, error) {
	if _, ok := kubeconfig.Contexts[kubeconfig.CurrentContext]; !ok {
		return nil, fmt.Errorf("current %q context not found", kubeconfig.CurrentContext)
	}
	s := &Session{Kubeconfig: kubeconfig, files: files, overrides: overrides}
	config, err := clientcmd.NewNonInteractiveClientConfig(*kubeconfig, kubeconfig.CurrentContext, &s.overrides, files).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("using context %q of the kubeconfig: %w", kubeconfig.CurrentContext, err)
	}
	s.config = config
	return s, nil
}

// Config returns the configuration of clients for the server URL in effect, which need not be that of a workspace.
func (s *Session) Config() *rest.Config { return rest.CopyConfig(s.config) }

// URL returns the server URL in effect.
func (s *Session) URL() string { return s.config.Host }

// Namespace returns the namespace of --namespace or of the context, or else "default".
func (s *Session) Namespace() (string, error) {
	namespace, _, err := clientcmd.NewNonInteractiveClientConfig(*s.Kubeconfig, s.Kubeconfig.CurrentContext, &s.overrides, s.files).Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace of context %q: %w", s.Kubeconfig.CurrentContext, err)
	}
	return namespace, nil
}

// Location returns the location of the server URL; see ParseLocation.
func (s *Session) Location() (Location, error) { return ParseLocation(s.URL()) }

// Save writes a changed copy of Kubeconfig, every entry to the file that it came from, and returns the session of the
// result. Credentials given by flag stay in effect in that session; they are not written.
func (s *Session) Save(changed *clientcmdapi.Config) (*Session, error) {
	if err := clientcmd.ModifyConfig(s.files, *changed, true); err != nil {
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	overrides := s.overrides
	overrides.CurrentContext = ""
	overrides.ClusterInfo.Server = "" // it is part of the new server URL
	return newSession(changed, s.files, overrides)
}

// Installation returns clients for all logical clusters of the installation of the current URL. It fails with a
// *NotWorkspaceURLError when that URL names no workspace.
func (s *Session) Installation() (*Installation, error) {
	location, err := s.Location()
	if err != nil {
		return nil, err
	}
	return newInstallation(location, s.config)
}

// InstallationAt returns clients for the installation of a location, with the credentials of the session.
func (s *Session) InstallationAt(location Location) (*Installation, error) {
	return newInstallation(location, s.config)
}
