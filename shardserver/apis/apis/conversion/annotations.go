package conversion

import (
	"encoding/json"
	"fmt"
	"maps"
)

// annotationEditor are the annotations of an object during conversion. They are copied on the first write, because the map
// is shared with the original object.
type annotationEditor struct {
	annotations map[string]string
	copied      bool
}

func (a *annotationEditor) ensureCopied() {
	if a.copied {
		return
	}
	a.annotations, a.copied = maps.Clone(a.annotations), true
	if a.annotations == nil {
		a.annotations = map[string]string{}
	}
}

// putAnnotation sets an annotation to a list as JSON, unless the list is empty.
func putAnnotation[T any](c *annotationEditor, key string, list []T) error {
	if len(list) == 0 {
		return nil
	}
	text, err := json.Marshal(list)
	if err != nil {
		return fmt.Errorf("encoding annotation %s: %w", key, err)
	}
	c.put(key, string(text))
	return nil
}

func (a *annotationEditor) put(key, value string) {
	a.ensureCopied()
	a.annotations[key] = value
}

func (a *annotationEditor) remove(key string) {
	if _, ok := a.annotations[key]; ok {
		a.ensureCopied()
		delete(a.annotations, key)
	}
}

// popAnnotation returns the list in an annotation and removes the annotation. An annotation that is not a list, or that
// usable rejects, stays and returns nil: validation reports it, and stored objects still convert.
func popAnnotation[T any](c *annotationEditor, key string, validate func([]T) error) []T {
	list, err := decodeAnnotation(c.annotations, key, validate)
	if err != nil {
		return nil
	}
	c.remove(key)
	return list
}

// decodeAnnotation returns the list in an annotation; nil if it is absent.
func decodeAnnotation[T any](annotations map[string]string, key string, validate func([]T) error) ([]T, error) {
	text, ok := annotations[key]
	if !ok {
		return nil, nil
	}
	var list []T
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("it is no such list: %w", err)
	}
	if err := validate(list); err != nil {
		return nil, err
	}
	return list, nil
}
