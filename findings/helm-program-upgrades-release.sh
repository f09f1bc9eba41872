#!/usr/bin/env bash
# A field that a chart no longer has stays in the cluster when another program than the one that installed the release upgrades it. Helm reports success.
#
# Versions: helm.sh/helm/v4 v4.3.1, against k8s.io/apiextensions-apiserver v0.37.2.
# Behaviour: Helm 4 applies on the server, which removes a field when its last manager no longer applies it. The command line names its manager
#   "helm"; the library takes the name of the program's file unless kube.ManagedFieldsManager is set. A release that the command line has installed, and a
#   program with the library upgrades, has two managers: the field belongs to the first one, which never applies again. Equal values are no
#   conflict, so that nothing says so.
# Output seen: `installed as "helm", upgraded as "": the field that the chart has lost is still there: true`, and false for the same manager.
# What follows: one program upgrades a release for its whole life, or sets kube.ManagedFieldsManager to the name that the others use.
#
# The script prints what it sees, and fails if the behaviour has changed. It needs Go.
set -euo pipefail

dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
cat >go.mod <<'MOD'
module example.org/finding

go 1.26.0

require (
	go.etcd.io/etcd/server/v3 v3.7.3
	helm.sh/helm/v4 v4.3.1
	k8s.io/apiextensions-apiserver v0.37.2
	k8s.io/apimachinery v0.37.2
	k8s.io/apiserver v0.37.2
	k8s.io/client-go v0.37.2
)
MOD
cat >main.go <<'GO'
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

// getter gives Helm the API server, and the one kind that it serves.
type getter struct{ config *rest.Config }

func (g getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }
func (g getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	client, err := discovery.NewDiscoveryClientForConfig(g.config)
	return memory.NewMemCacheClient(client), err
}
func (g getter) ToRESTMapper() (meta.RESTMapper, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.AddSpecific(widgets.GroupVersion().WithKind("Widget"), widgets, widgets.GroupVersion().WithResource("widget"), meta.RESTScopeRoot)
	return mapper, nil
}
func (g getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(*api.NewConfig(), &clientcmd.ConfigOverrides{})
}

// start runs an etcd and an API server with the definition of widgets.
func start(ctx context.Context, dir string) (*rest.Config, dynamic.Interface, error) {
	config := embed.NewConfig()
	config.Dir, config.LogLevel = filepath.Join(dir, "etcd"), "error"
	free := func() []url.URL {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		defer listener.Close()
		return []url.URL{{Scheme: "http", Host: listener.Addr().String()}}
	}
	config.ListenClientUrls, config.ListenPeerUrls = free(), free()
	config.AdvertiseClientUrls, config.AdvertisePeerUrls = config.ListenClientUrls, config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, nil, err
	}
	<-etcd.Server.ReadyNotify()

	kubeconfig := filepath.Join(dir, "unused")
	text := `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
		clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: a, user: {}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return nil, nil, err
	}
	o := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse([]string{
		"--etcd-servers", config.ListenClientUrls[0].String(), "--secure-port=0", "--cert-dir", filepath.Join(dir, "certs"),
		"--authentication-skip-lookup", "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig, "--kubeconfig", kubeconfig,
		"--enable-priority-and-fairness=false",
		"--disable-admission-plugins", "NamespaceLifecycle,MutatingAdmissionWebhook,ValidatingAdmissionWebhook,ValidatingAdmissionPolicy,MutatingAdmissionPolicy",
	}); err != nil {
		return nil, nil, err
	}
	if o.RecommendedOptions.SecureServing.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	o.RecommendedOptions.SecureServing.BindPort = o.RecommendedOptions.SecureServing.Listener.Addr().(*net.TCPAddr).Port
	if err := o.Complete(); err != nil {
		return nil, nil, err
	}
	serverConfig, err := o.Config()
	if err != nil {
		return nil, nil, err
	}
	server, err := serverConfig.Complete().New(genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(server.GenericAPIServer.LoopbackClientConfig)
	if err != nil {
		return nil, nil, err
	}
	go func() { _ = server.GenericAPIServer.PrepareRun().RunWithContext(ctx) }()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Cluster", "names": map[string]any{"plural": "widgets", "kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true,
			}}}},
		},
	}}
	for range 300 {
		_, err = client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(ctx, definition, metav1.CreateOptions{})
		if err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for range 300 {
		if _, err = client.Resource(widgets).List(ctx, metav1.ListOptions{}); err == nil {
			return server.GenericAPIServer.LoopbackClientConfig, client, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, nil, err
}

// write writes the chart with a Widget of a spec.
func write(spec string) error {
	if err := os.MkdirAll("chart/templates", 0o755); err != nil {
		return err
	}
	if err := os.WriteFile("chart/Chart.yaml", []byte("apiVersion: v2\nname: one\nversion: 1.0.0\n"), 0o600); err != nil {
		return err
	}
	return os.WriteFile("chart/templates/widget.yaml", []byte("apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: {{ .Release.Name }}}\nspec: "+spec+"\n"), 0o600)
}

func run(dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, client, err := start(ctx, dir)
	if err != nil {
		return err
	}
	for _, test := range []struct {
		name, installer, upgrader string // the field managers; empty is what the library chooses
		stays                     bool
	}{{"same", "helm", "helm", false}, {"other", "helm", "", true}} {
		helm := action.NewConfiguration()
		if err := helm.Init(getter{config}, "default", "memory"); err != nil {
			return err
		}
		helm.Capabilities = common.DefaultCapabilities
		if err := write("{size: 1, colour: red}"); err != nil {
			return err
		}
		kube.ManagedFieldsManager = test.installer
		install := action.NewInstall(helm)
		install.ReleaseName, install.Namespace, install.WaitStrategy, install.DisableOpenAPIValidation = test.name, "default", kube.HookOnlyStrategy, true
		chart, err := loader.Load("chart")
		if err != nil {
			return err
		}
		if _, err := install.Run(chart, nil); err != nil {
			return fmt.Errorf("install: %w", err)
		}
		if err := write("{size: 1}"); err != nil {
			return err
		}
		if chart, err = loader.Load("chart"); err != nil {
			return err
		}
		kube.ManagedFieldsManager = test.upgrader
		upgrade := action.NewUpgrade(helm)
		upgrade.Namespace, upgrade.WaitStrategy, upgrade.DisableOpenAPIValidation = "default", kube.HookOnlyStrategy, true
		if _, err := upgrade.Run(test.name, chart, nil); err != nil {
			return fmt.Errorf("upgrade: %w", err)
		}
		widget, err := client.Resource(widgets).Get(ctx, test.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, stays, _ := unstructured.NestedString(widget.Object, "spec", "colour")
		fmt.Printf("installed as %q, upgraded as %q: the field that the chart has lost is still there: %v\n", test.installer, test.upgrader, stays)
		if stays != test.stays {
			return errors.New("the behaviour has changed")
		}
	}
	return nil
}

func main() {
	dir, err := os.MkdirTemp("", "finding")
	if err == nil {
		err = run(dir)
	}
	_ = os.RemoveAll(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
GO
go mod tidy >/dev/null 2>&1
go run . 2>log || { cat log >&2; exit 1; }
