package publishedresource

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	sigsyaml "sigs.k8s.io/yaml"

	servicesv1alpha1 "github.com/atoll-dev/atoll/api/kdp/services/v1alpha1"
	syncagentv1alpha1 "github.com/atoll-dev/atoll/api/syncagent/v1alpha1"
	"github.com/atoll-dev/atoll/plugin/manifests"
	"github.com/atoll-dev/atoll/syncagent/kdp"
	"github.com/atoll-dev/atoll/syncagent/publication"
)

const kind = "PublishedResource"

// read returns the publications of the file. Unknown fields are errors: the server would drop them silently.
func (in *input) read() ([]*publication.Publication, error) {
	var all []*publication.Publication
	err := manifests.Read(in.file, in.flags.In, func(found metav1.TypeMeta, document []byte) error {
		p, err := in.convert(found, document)
		if err == nil {
			all = append(all, p)
		}
		return err
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%s holds no %s", manifests.Name(in.file), kind)
	}
	return all, err
}

func (in *input) convert(found metav1.TypeMeta, document []byte) (*publication.Publication, error) {
	switch {
	case found.Kind == kind && found.APIVersion == syncagentv1alpha1.SchemeGroupVersion.String():
		object := &syncagentv1alpha1.PublishedResource{}
		if err := decode(document, object); err != nil {
			return nil, err
		}
		return publication.FromPublishedResource(object), nil
	case found.Kind == kind && found.APIVersion == servicesv1alpha1.SchemeGroupVersion.String():
		if in.group == "" {
			return nil, fmt.Errorf("--service-group is required for a %s of %s", kind, servicesv1alpha1.SchemeGroupVersion)
		}
		object := &servicesv1alpha1.PublishedResource{}
		if err := decode(document, object); err != nil {
			return nil, err
		}
		return kdp.FromPublishedResource(object, in.group), nil
	}
	return nil, fmt.Errorf("want a %s of %s or %s, not a %s of %s", kind, syncagentv1alpha1.SchemeGroupVersion,
		servicesv1alpha1.SchemeGroupVersion, found.Kind, found.APIVersion)
}

// decode returns all unknown and duplicate fields in one error.
func decode(document []byte, object any) error {
	content, err := sigsyaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	strict, err := json.UnmarshalStrict(content, object)
	return errors.Join(append(strict, err)...)
}
