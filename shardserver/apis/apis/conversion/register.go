// Package conversion converts APIExports and APIBindings between v1alpha1 and v1alpha2. Neither version can represent
// all fields of the other; the rest is preserved in annotations, so that a round trip loses nothing. All functions are
// pure. Stored objects always convert; objects from clients may not.
package conversion

import (
	"fmt"

	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"

	apisv1alpha1 "github.com/atoll-dev/atoll/api/apis/v1alpha1"
	apisv1alpha2 "github.com/atoll-dev/atoll/api/apis/v1alpha2"
)

// Register adds the conversions of exports, bindings and their lists to a scheme.
func Register(scheme *runtime.Scheme) error {
	for _, err := range []error{
		register(scheme, ExportToV1alpha2),
		register(scheme, ExportToV1alpha1),
		register(scheme, BindingToV1alpha2),
		register(scheme, BindingToV1alpha1),
		register(scheme, func(in *apisv1alpha1.APIExportList, out *apisv1alpha2.APIExportList) error {
			out.ListMeta = in.ListMeta
			return convertItems(in.Items, &out.Items, ExportToV1alpha2)
		}),
		register(scheme, func(in *apisv1alpha2.APIExportList, out *apisv1alpha1.APIExportList) error {
			out.ListMeta = in.ListMeta
			return convertItems(in.Items, &out.Items, ExportToV1alpha1)
		}),
		register(scheme, func(in *apisv1alpha1.APIBindingList, out *apisv1alpha2.APIBindingList) error {
			out.ListMeta = in.ListMeta
			return convertItems(in.Items, &out.Items, BindingToV1alpha2)
		}),
		register(scheme, func(in *apisv1alpha2.APIBindingList, out *apisv1alpha1.APIBindingList) error {
			out.ListMeta = in.ListMeta
			return convertItems(in.Items, &out.Items, BindingToV1alpha1)
		}),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func register[In, Out any](scheme *runtime.Scheme, convert func(in *In, out *Out) error) error {
	var in *In
	var out *Out
	err := scheme.AddConversionFunc(in, out, func(a, b any, _ conversion.Scope) error {
		return convert(a.(*In), b.(*Out))
	})
	if err != nil {
		return fmt.Errorf("registering the conversion of %T to %T: %w", in, out, err)
	}
	return nil
}

func convertItems[In, Out any](in []In, out *[]Out, convert func(in *In, out *Out) error) error {
	if in == nil {
		return nil
	}
	*out = make([]Out, len(in))
	for i := range in {
		if err := convert(&in[i], &(*out)[i]); err != nil {
			return err
		}
	}
	return nil
}
