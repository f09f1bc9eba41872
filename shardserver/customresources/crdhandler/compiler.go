package crdhandler

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	stock "k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/atoll-dev/atoll/internal/crdpaths"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdregistry"
	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// Config has what the upstream handler of custom resources depends on.
type Config struct {
	Admission  admission.Interface
	Authorizer authorizer.UnconditionalAuthorizer
	// RequestTimeout and MinRequestTimeout are those of the API server.
	RequestTimeout, MinRequestTimeout time.Duration
	MaxRequestBodyBytes               int64
	// MaxLevels bounds how deep an object in protobuf may nest. The caller must bound other encodings.
	MaxLevels int
	// Paths bounds the work of tables and selectable fields.
	Paths crdpaths.Limits
	// OpenAPI returns the schemas of the built-in types, by name. It is called when the server runs.
	OpenAPI func() map[string]*spec.Schema
}

// metaSchemaPrefix is the prefix of the names of the schemas that custom resources refer to.
const metaSchemaPrefix = "io.k8s.apimachinery."

// NewCompiler returns a function that creates the handlers of a compiled CRD, over the storage that all compiled CRDs of
// the resource share. The upstream handler serves one definition, which never changes.
func NewCompiler(cfg Config) crdregistry.Compiler {
	models := sync.OnceValue(func() map[string]*spec.Schema {
		models := map[string]*spec.Schema{}
		for name, model := range cfg.OpenAPI() {
			if strings.HasPrefix(name, metaSchemaPrefix) {
				models[name] = model
			}
		}
		return models
	})
	admit := terminatingAdmission{cfg.Admission}
	return func(crd *crdregistry.CompiledCRD) (*crdregistry.Handlers, error) {
		definition, err := crd.Definition()
		if err != nil {
			return nil, err
		}
		definition = cfg.Paths.Evaluated(definition)
		var versions []string
		for i := range definition.Spec.Versions {
			versions = append(versions, definition.Spec.Versions[i].Name)
		}
		views := crd.Storage.ViewsOf(crd.Publication, versions...)
		// Webhook clients have no credentials and follow no redirects: tenants write the webhook configurations.
		handler, err := stock.NewCustomResourceDefinitionHandler(nil, nil, staticInformer{definition: definition}, http.NotFoundHandler(),
			views, admit, nil, noServiceResolver{}, wrapConversionClients, 1, cfg.Authorizer,
			cfg.RequestTimeout, cfg.MinRequestTimeout, models(), cfg.MaxRequestBodyBytes)
		if err != nil {
			views.Close()
			return nil, fmt.Errorf("creating the stock handler: %w", err)
		}
		// The upstream handler compiles the definition here, and creates the views.
		instances, err := handler.GetCustomResourceListerCollectionDeleter(definition)
		if err != nil {
			views.Close()
			return nil, err
		}
		if err := adaptStores(crd, handler, definition.UID, cfg.Paths.RowBytes); err != nil {
			views.Close()
			return nil, err
		}
		reads := crdstorage.NewReadHandler(views, definition, cfg.MinRequestTimeout)
		return &crdregistry.Handlers{Stock: handler, Instances: instances, Views: views, Reads: reads}, nil
	}
}

// staticInformer is an informer and lister of one definition that never changes. It has no events and no goroutine.
type staticInformer struct {
	cache.SharedIndexInformer // not used
	definition                *apiextensionsv1.CustomResourceDefinition
}

var (
	_ informers.CustomResourceDefinitionInformer = staticInformer{}
	_ listers.CustomResourceDefinitionLister     = staticInformer{}
)

// Informer implements informers.CustomResourceDefinitionInformer.
func (s staticInformer) Informer() cache.SharedIndexInformer { return s }

// Lister implements informers.CustomResourceDefinitionInformer.
func (s staticInformer) Lister() listers.CustomResourceDefinitionLister { return s }

// AddEventHandler implements cache.SharedIndexInformer.
func (staticInformer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

// List implements listers.CustomResourceDefinitionLister.
func (s staticInformer) List(labels.Selector) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return []*apiextensionsv1.CustomResourceDefinition{s.definition}, nil
}

// Get implements listers.CustomResourceDefinitionLister. Requests for other definitions do not reach the handler.
func (s staticInformer) Get(string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return s.definition, nil
}
