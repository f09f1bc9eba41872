package cacheserver

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage/value"
)

// resourceTransformers returns the transformers of --encryption-provider-config, or nil.
func resourceTransformers(generic *genericapiserver.Config) func(schema.GroupResource) value.Transformer {
	if generic.ResourceTransformers == nil {
		return nil
	}
	return generic.ResourceTransformers.TransformerForResource
}
