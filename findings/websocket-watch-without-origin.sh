#!/usr/bin/env bash
# An API server refuses a watch by WebSocket without the header Origin, which only browsers send, with 403 and without a reason.
#
# Versions: k8s.io/apiserver and k8s.io/apiextensions-apiserver v0.37.2, github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674.
# Behaviour: watches by WebSocket are served by golang.org/x/net/websocket, whose handler wants an Origin, whatever it is. The user is authenticated and
#   may watch; the body of the response is empty.
# Output seen: `watch with the Origin "": status 403, body ""`, and 101 with any Origin.
# What follows: a program that is no browser sends an Origin when it watches by WebSocket.
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
	github.com/gorilla/websocket v1.5.4-0.20250319132907-e064f32e3674
	go.etcd.io/etcd/server/v3 v3.7.3
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
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

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

func run(dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, _, err := start(ctx, dir)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	dialer := websocket.Dialer{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: config.ServerName}}
	for _, test := range []struct {
		origin string
		code   int
	}{{"", http.StatusForbidden}, {"https://anything.example.org", http.StatusSwitchingProtocols}} {
		header := http.Header{"Authorization": {"Bearer " + config.BearerToken}}
		if test.origin != "" {
			header.Set("Origin", test.origin)
		}
		connection, response, err := dialer.DialContext(ctx, strings.Replace(config.Host, "https", "wss", 1)+"/apis/example.org/v1/widgets?watch=1", header)
		if response == nil {
			return err
		}
		body, _ := io.ReadAll(response.Body)
		fmt.Printf("watch with the Origin %q: status %d, body %q\n", test.origin, response.StatusCode, body)
		if connection != nil {
			_ = connection.Close()
		}
		if response.StatusCode != test.code || len(body) > 0 {
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
