package storage

import (
	"bytes"
	"context"
	"path"
	"strings"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/atoll-dev/atoll/logicalcluster"
)

// protobufMagic begins every value that Kubernetes stores as protobuf. A runtime.Unknown with the object follows.
const protobufMagic = "k8s\x00"

// Field numbers of protobuf: the object in a runtime.Unknown, the metadata of every kind, its annotations, the entries of a map.
const (
	rawField         protowire.Number = 2
	metadataField    protowire.Number = 1
	annotationsField protowire.Number = 12
	mapKeyField      protowire.Number = 1
	mapValueField    protowire.Number = 2
)

// annotationPath is the path of the annotation in JSON.
var annotationPath = "metadata.annotations." + strings.ReplaceAll(logicalcluster.AnnotationKey, ".", `\.`)

// annotatingTransformer sets the annotation of the logical cluster in values that it reads from etcd, where it is missing
// or differs from the key. This storage writes it into every value; a kcp server derives it from the key when it reads, and
// leaves values without it, or with what a client sent. The watch cache has no key, and would mix logical clusters.
//
// A transformer is the one extension point of the stock storage that receives both key and value.
type annotatingTransformer struct {
	value.Transformer
	// prefix is that of the keys of the resource, including a slash at the end.
	prefix []byte
}

// annotateFromKeys returns the transformer of a storage (nil for the default one) that also annotates. The prefixes are those of
// the server and of the resource.
func annotateFromKeys(transformer value.Transformer, serverPrefix, resourcePrefix string) value.Transformer {
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	return &annotatingTransformer{transformer, []byte(path.Join("/", serverPrefix, resourcePrefix) + "/")}
}

// TransformFromStorage implements value.Transformer. A changed value is stale, so that the next write of the object stores it.
func (a *annotatingTransformer) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	data, stale, err := a.Transformer.TransformFromStorage(ctx, data, dataCtx)
	if err != nil {
		return data, stale, err
	}
	rest, ok := bytes.CutPrefix(dataCtx.AuthenticatedData(), a.prefix)
	cluster, _, isObject := bytes.Cut(rest, []byte("/"))
	if !ok || !isObject {
		return data, stale, nil
	}
	annotated, changed := annotate(data, string(cluster))
	return annotated, stale || changed, nil
}

// annotate returns a stored value with the annotation, and whether it had another one or none. A value that cannot be parsed is
// returned unchanged: decoding it reports the error.
func annotate(data []byte, cluster string) (annotated []byte, changed bool) {
	if message, ok := bytes.CutPrefix(data, []byte(protobufMagic)); ok {
		if hasAnnotation(message, cluster) {
			return data, false
		}
		if annotated, err := annotateProtobuf(message, cluster); err == nil {
			return annotated, true
		}
		return data, false
	}
	return annotateJSON(data, cluster)
}

func annotateJSON(data []byte, cluster string) (annotated []byte, changed bool) {
	if found := gjson.GetBytes(data, annotationPath); found.Type == gjson.String && found.Str == cluster {
		return data, false
	}
	content := map[string]any{}
	if err := utiljson.Unmarshal(data, &content); err != nil {
		return data, false
	}
	metadata, ok := content["metadata"].(map[string]any)
	if !ok {
		return data, false
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	annotations[logicalcluster.AnnotationKey] = cluster
	annotated, err := utiljson.Marshal(content)
	if err != nil {
		return data, false
	}
	return annotated, true
}

// annotateProtobuf appends a second metadata with the annotation. Decoders merge occurrences of a message, and the last entry for a
// key of a map counts.
func annotateProtobuf(message []byte, cluster string) ([]byte, error) {
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(message); err != nil {
		return nil, err
	}
	entry := protowire.AppendString(protowire.AppendTag(nil, mapKeyField, protowire.BytesType), logicalcluster.AnnotationKey)
	entry = protowire.AppendString(protowire.AppendTag(entry, mapValueField, protowire.BytesType), cluster)
	metadata := protowire.AppendBytes(protowire.AppendTag(nil, annotationsField, protowire.BytesType), entry)
	unknown.Raw = protowire.AppendBytes(protowire.AppendTag(unknown.Raw, metadataField, protowire.BytesType), metadata)
	encoded, err := unknown.Marshal()
	return append([]byte(protobufMagic), encoded...), err
}

// hasAnnotation reports whether the object in an encoded runtime.Unknown has the annotation with the name of the logical cluster.
func hasAnnotation(message []byte, cluster string) (found bool) {
	eachValue(message, rawField, func(object []byte) {
		eachValue(object, metadataField, func(metadata []byte) {
			eachValue(metadata, annotationsField, func(entry []byte) {
				isAnnotation := false
				eachValue(entry, mapKeyField, func(key []byte) { isAnnotation = string(key) == logicalcluster.AnnotationKey })
				if isAnnotation {
					eachValue(entry, mapValueField, func(value []byte) { found = string(value) == cluster })
				}
			})
		})
	})
	return found
}

// eachValue visits the values of a field whose type is a message, bytes or a string.
func eachValue(message []byte, field protowire.Number, visit func([]byte)) {
	for len(message) > 0 {
		number, kind, length := protowire.ConsumeTag(message)
		if length < 0 {
			return
		}
		message = message[length:]
		if length = protowire.ConsumeFieldValue(number, kind, message); length < 0 {
			return
		}
		if number == field && kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(message)
			visit(content)
		}
		message = message[length:]
	}
}
