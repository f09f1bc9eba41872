package customresources

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
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/atoll-dev/atoll/shardserver/customresources/crdstorage"
)

// Serving is what the stock handler of custom resources works with.
type Serving struct {
	Admission  admission.Interface
	Authorizer authorizer.Authorizer
	// RequestTimeout and MinRequestTimeout are those of the API server.
	RequestTimeout, MinRequestTimeout time.Duration
	MaxRequestBodyBytes               int64
	// OpenAPI returns the schemas of the compiled-in types, by name. It is asked when the server serves.
	OpenAPI func() map[string]*spec.Schema
}

// metaModels begins the names of the schemas that those of custom resources refer to.
const metaModels = "io.k8s.apimachinery."

// compiled serves the requests of one content.
type compiled struct {
	stock     http.Handler
	instances finalizer.ListerCollectionDeleter
	views     *crdstorage.Views
	reads     *crdstorage.Reads
}

// compiler returns what makes the stock handler of a content, over the storage that all contents of its resource share.
// The stock handler knows one definition, which never changes: what the definitions with this content agree on.
func compiler(serving Serving) func(*Content) (*compiled, error) {
	models := sync.OnceValue(func() map[string]*spec.Schema {
		models := map[string]*spec.Schema{}
		for name, model := range serving.OpenAPI() {
			if strings.HasPrefix(name, metaModels) {
				models[name] = model
			}
		}
		return models
	})
	guarded := refusingCreations{serving.Admission}
	return func(c *Content) (*compiled, error) {
		definition, err := c.Definition()
		if err != nil {
			return nil, err
		}
		views := c.store.Views()
		// Webhooks get no credentials and lead nowhere else: a tenant writes their configuration.
		handler, err := stock.NewCustomResourceDefinitionHandler(nil, nil, fixed{definition: definition}, http.NotFoundHandler(),
			views, guarded, nil, noServices{}, wrapConversions, 1, serving.Authorizer,
			serving.RequestTimeout, serving.MinRequestTimeout, models(), serving.MaxRequestBodyBytes)
		if err != nil {
			views.Close()
			return nil, fmt.Errorf("creating the stock handler: %w", err)
		}
		// This makes the handler compile everything, the views too.
		instances, err := handler.GetCustomResourceListerCollectionDeleter(definition)
		if err != nil {
			views.Close()
			return nil, err
		}
		if err := c.bend(handler, definition.UID); err != nil {
			views.Close()
			return nil, err
		}
		reads := crdstorage.NewReads(views, definition, serving.MinRequestTimeout)
		return &compiled{stock: handler, instances: instances, views: views, reads: reads}, nil
	}
}

// close ends what was made. Requests that still run fail.
func (c *compiled) close() { c.views.Close() }

// fixed is the informer of one definition that never changes: it has no events, hence needs no goroutine.
type fixed struct {
	cache.SharedIndexInformer // not used
	definition                *apiextensionsv1.CustomResourceDefinition
}

var (
	_ informers.CustomResourceDefinitionInformer = fixed{}
	_ listers.CustomResourceDefinitionLister     = fixed{}
)

// Informer implements informers.CustomResourceDefinitionInformer.
func (f fixed) Informer() cache.SharedIndexInformer { return f }

// Lister implements informers.CustomResourceDefinitionInformer.
func (f fixed) Lister() listers.CustomResourceDefinitionLister { return f }

// AddEventHandler implements cache.SharedIndexInformer.
func (fixed) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

// List implements listers.CustomResourceDefinitionLister.
func (f fixed) List(labels.Selector) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	return []*apiextensionsv1.CustomResourceDefinition{f.definition}, nil
}

// Get implements listers.CustomResourceDefinitionLister. Whoever asks was sent here because of this definition.
func (f fixed) Get(string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return f.definition, nil
}
