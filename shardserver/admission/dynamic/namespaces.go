package dynamic

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

var namespaces = schema.GroupResource{Resource: "namespaces"}

// namespaceReader provides the namespaces of one logical cluster, that of its context, as the lister and the client
// that upstream's matchers use. Both read in the process: the lister from the watch cache, the client consistently from
// storage.
type namespaceReader struct {
	corev1listers.NamespaceListerExpansion
	// ctx carries the logical cluster, because upstream's lister interface has no context parameter.
	ctx    context.Context
	reader *storage.Reader[*core.Namespace]
}

var _ corev1listers.NamespaceLister = namespaceReader{}

// Get implements corev1listers.NamespaceLister.
func (n namespaceReader) Get(name string) (*corev1.Namespace, error) {
	return namespaceV1(n.reader.Get(n.ctx, "", name))
}

// List implements corev1listers.NamespaceLister.
func (n namespaceReader) List(selector labels.Selector) ([]*corev1.Namespace, error) {
	found, err := n.reader.List(n.ctx, "", selector)
	if err != nil {
		return nil, err
	}
	all := make([]*corev1.Namespace, 0, len(found))
	for _, one := range found {
		converted, err := namespaceV1(one, nil)
		if err != nil {
			return nil, err
		}
		all = append(all, converted)
	}
	return all, nil
}

// client returns a client that implements reading of namespaces only.
func (n namespaceReader) client() kubernetes.Interface { return namespaceClient{namespaces: n} }

type namespaceClient struct {
	kubernetes.Interface
	namespaces namespaceReader
}

func (c namespaceClient) CoreV1() corev1client.CoreV1Interface {
	return namespaceCore{namespaces: c.namespaces}
}

type namespaceCore struct {
	corev1client.CoreV1Interface
	namespaces namespaceReader
}

func (c namespaceCore) Namespaces() corev1client.NamespaceInterface {
	return latestNamespaces{namespaces: c.namespaces}
}

type latestNamespaces struct {
	corev1client.NamespaceInterface
	namespaces namespaceReader
}

// Get reads consistently from storage and ignores the context: upstream passes one without a logical cluster.
func (l latestNamespaces) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Namespace, error) {
	return namespaceV1(l.namespaces.reader.GetLatest(l.namespaces.ctx, "", name))
}

func namespaceV1(namespace *core.Namespace, err error) (*corev1.Namespace, error) {
	if err != nil {
		return nil, err
	}
	converted := &corev1.Namespace{}
	if err := corev1conversion.Convert_core_Namespace_To_v1_Namespace(namespace, converted, nil); err != nil {
		return nil, fmt.Errorf("converting namespace %q: %w", namespace.Name, err)
	}
	return converted, nil
}
