package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"

	"github.com/atoll-dev/atoll/shardserver/controller"
	"github.com/atoll-dev/atoll/shardserver/storage"
)

// rootCAController publishes the CA bundle of the server in each active namespace.
type rootCAController struct {
	cfg        Config
	namespaces *storage.Reader[*core.Namespace]
	configMaps *storage.Reader[*core.ConfigMap]
}

func newRootCAController(cfg Config) controller.Controller {
	c := &rootCAController{
		cfg:        cfg,
		namespaces: storage.NewReader[*core.Namespace](cfg.Registry, namespaces),
		configMaps: storage.NewReader[*core.ConfigMap](cfg.Registry, configMaps),
	}
	return controller.Controller{
		Name: "root-ca",
		Sources: []controller.Source{
			{Resource: namespaces, MapFunc: perNamespace(rootcacertpublisher.RootCACertConfigMapName)},
			{Resource: configMaps, MapFunc: onlyNamed(rootcacertpublisher.RootCACertConfigMapName)},
		},
		Reconcile: c.reconcile,
	}
}

func (c *rootCAController) reconcile(ctx context.Context, key controller.Request) (controller.Result, error) {
	bundle := c.cfg.RootCA()
	if len(bundle) == 0 {
		return controller.Result{}, nil
	}
	existing, err := c.configMaps.Get(ctx, key.Namespace, key.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	found := err == nil
	if found && hasBundle(existing, bundle) {
		return controller.Result{}, nil
	}
	namespace, err := c.namespaces.Get(ctx, "", key.Namespace)
	if apierrors.IsNotFound(err) || (err == nil && !isActive(namespace)) {
		return controller.Result{}, nil
	}
	if err != nil {
		return controller.Result{}, err
	}
	desired := rootCAConfigMap(key.Namespace, bundle)
	if found {
		// Metadata set by others is kept.
		desired.ObjectMeta = *existing.ObjectMeta.DeepCopy()
		metav1.SetMetaDataAnnotation(&desired.ObjectMeta, rootcacertpublisher.DescriptionAnnotation, rootcacertpublisher.Description)
		err = c.cfg.Clients.Typed.Update(ctx, desired)
	} else {
		err = c.cfg.Clients.Typed.Create(ctx, desired)
	}
	if err = ignoreTerminatingNamespace(err); err != nil {
		return controller.Result{}, fmt.Errorf("publishing config map %q in namespace %q: %w", key.Name, key.Namespace, err)
	}
	return controller.Result{}, nil
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
