package loopback

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Clients are the clients of one process. They share one HTTP client, hence its connections.
type Clients struct {
	// Typed reads and writes the types of Scheme. It never uses discovery.
	Typed client.Client
	// Kubernetes is for stock code that takes a clientset.
	Kubernetes kubernetes.Interface
	// Metadata lists and deletes objects of any resource without their type.
	Metadata metadata.Interface
	// Dynamic reads objects of any resource as they are served.
	Dynamic dynamic.Interface
	// HTTP is the HTTP client of the others.
	HTTP *http.Client

	direct *directHandler
}

// NewClients returns clients that send requests to the logical cluster of their context, with the identity of config.
func NewClients(config *rest.Config) (*Clients, error) {
	handler := new(directHandler)
	clusterized := clusterize(config, handler)
	httpClient, err := rest.HTTPClientFor(clusterized)
	if err != nil {
		return nil, fmt.Errorf("building the loopback HTTP client: %w", err)
	}
	typed, err := client.New(clusterized, client.Options{HTTPClient: httpClient, Scheme: Scheme, Mapper: restMapper()})
	if err != nil {
		return nil, fmt.Errorf("building the typed loopback client: %w", err)
	}
	clientset, err := kubernetes.NewForConfigAndClient(clusterized, httpClient)
	if err != nil {
		return nil, fmt.Errorf("building the loopback clientset: %w", err)
	}
	metadataClient, err := metadata.NewForConfigAndClient(metadata.ConfigFor(clusterized), httpClient)
	if err != nil {
		return nil, fmt.Errorf("building the loopback metadata client: %w", err)
	}
	dynamicClient, err := dynamic.NewForConfigAndClient(dynamic.ConfigFor(clusterized), httpClient)
	if err != nil {
		return nil, fmt.Errorf("building the dynamic loopback client: %w", err)
	}
	return &Clients{Typed: typed, Kubernetes: clientset, Metadata: metadataClient, Dynamic: dynamicClient, HTTP: httpClient, direct: handler}, nil
}

// NewClient returns only the typed client of NewClients.
func NewClient(config *rest.Config) (client.Client, error) {
	clients, err := NewClients(config)
	if err != nil {
		return nil, err
	}
	return clients.Typed, nil
}
