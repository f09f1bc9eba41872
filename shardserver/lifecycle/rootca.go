package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"

	"github.com/atoll-dev/atoll/shardserver/storage"
)

// rootCA publishes the CA bundle of the server in each active namespace.
type rootCA struct {
	cfg        Config
	configMaps *storage.Reader[*core.ConfigMap]
}

// missing implements namespaceDefault.
func (c *rootCA) missing(ctx context.Context, namespace, resourceVersion string) (func(context.Context) error, error) {
	bundle := c.cfg.rootCA()
	if len(bundle) == 0 {
		return nil, nil
	}
	existing, err := c.configMaps.GetNotOlderThan(ctx, namespace, rootcacertpublisher.RootCACertConfigMapName, resourceVersion)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	found := err == nil
	if found && hasBundle(existing, bundle) {
		return nil, nil
	}
	return func(ctx context.Context) error {
		desired, write := rootCAConfigMap(namespace, bundle), c.create
		if found {
			// Metadata set by others is kept.
			desired.ObjectMeta, write = *existing.ObjectMeta.DeepCopy(), c.update
			metav1.SetMetaDataAnnotation(&desired.ObjectMeta, rootcacertpublisher.DescriptionAnnotation, rootcacertpublisher.Description)
		}
		if err := ignoreTerminatingNamespace(write(ctx, desired)); err != nil {
			return fmt.Errorf("publishing config map %q in namespace %q: %w", desired.Name, namespace, err)
		}
		return nil
	}, nil
}

func (c *rootCA) create(ctx context.Context, configMap *corev1.ConfigMap) error {
	return c.cfg.Clients.Typed.Create(ctx, configMap)
}

func (c *rootCA) update(ctx context.Context, configMap *corev1.ConfigMap) error {
	return c.cfg.Clients.Typed.Update(ctx, configMap)
}

// hasBundle reports whether a config map contains the bundle and nothing else.
func hasBundle(configMap *core.ConfigMap, bundle []byte) bool {
	return len(configMap.Data) == 1 && configMap.Data[corev1.ServiceAccountRootCAKey] == string(bundle) && len(configMap.BinaryData) == 0 &&
		configMap.Annotations[rootcacertpublisher.DescriptionAnnotation] == rootcacertpublisher.Description
}

func rootCAConfigMap(namespace string, bundle []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        rootcacertpublisher.RootCACertConfigMapName,
			Annotations: map[string]string{rootcacertpublisher.DescriptionAnnotation: rootcacertpublisher.Description},
		},
		Data: map[string]string{corev1.ServiceAccountRootCAKey: string(bundle)},
	}
}
