package nesting

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"sigs.k8s.io/yaml"
)

const lowLimit = 10

// newDefinition returns a definition whose schema has levels of negations.
func newDefinition(levels int) *apiextensionsv1.CustomResourceDefinition {
	schema := nestedSchema(levels, func(s apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Not: &s}
	})
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		Spec:     apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema}}}},
	}
}

// TestSerializers checks every decoder of a serializer and of the serializer of a storage.
func TestSerializers(t *testing.T) {
	all := newScheme(t)
	codecs := serializer.NewCodecFactory(all, serializer.WithSerializer(cbor.NewSerializerInfo))
	checker := NewChecker(all)
	stored := checker.StorageSerializer(codecs, lowLimit)
	if got := len(checker.Serializer(codecs, lowLimit).SupportedMediaTypes()); got != 4 {
		t.Errorf("%d media types, want JSON, YAML, protobuf and CBOR", got)
	}
	for _, infos := range [][]runtime.SerializerInfo{checker.Serializer(codecs, lowLimit).SupportedMediaTypes(), stored.SupportedMediaTypes()} {
		for _, info := range infos {
			decoders := map[string]runtime.Serializer{"": info.Serializer, " strict": info.StrictSerializer, " pretty": info.PrettySerializer}
			if info.StreamSerializer != nil {
				decoders[" stream"] = info.StreamSerializer.Serializer
			}
			for name, decoder := range decoders {
				if decoder == nil {
					continue
				}
				t.Run(info.MediaType+name, func(t *testing.T) { testDecoder(t, decoder, decoder) })
			}
			t.Run("universal "+info.MediaType, func(t *testing.T) { testDecoder(t, info.Serializer, stored.UniversalDeserializer()) })
		}
	}
}

// testDecoder encodes an object within the limit and one above it.
func testDecoder(t *testing.T, encoder runtime.Encoder, decoder runtime.Decoder) {
	kind := apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
	for levels, refused := range map[int]bool{2: false, 20: true} {
		var data bytes.Buffer
		if err := encoder.Encode(newDefinition(levels), &data); err != nil {
			t.Fatal(err)
		}
		_, _, err := decoder.Decode(data.Bytes(), &kind, &apiextensionsv1.CustomResourceDefinition{})
		if apierrors.IsBadRequest(err) != refused || (err != nil) != refused {
			t.Errorf("%d levels: %v", levels, err)
		}
	}
}

// TestKindOfData checks that the serializer checks the kind that an envelope names, not the expected kind.
func TestKindOfData(t *testing.T) {
	all := newScheme(t)
	codecs := serializer.NewCodecFactory(all)
	info, _ := runtime.SerializerInfoForMediaType(NewChecker(all).Serializer(codecs, lowLimit).SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	var data bytes.Buffer
	if err := info.Serializer.Encode(newDefinition(20), &data); err != nil {
		t.Fatal(err)
	}
	kind := metav1.SchemeGroupVersion.WithKind("DeleteOptions")
	if _, _, err := info.Serializer.Decode(data.Bytes(), &kind, &metav1.DeleteOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("got %v", err)
	}
	raw := &runtime.Unknown{}
	if _, _, err := info.Serializer.Decode(data.Bytes(), nil, raw); err != nil || len(raw.Raw) == 0 {
		t.Errorf("an object that is not decoded is refused: %v", err)
	}
}

func TestBodyLimits(t *testing.T) {
	toYAML := func(text string) string {
		out, err := yaml.JSONToYAML([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	toCBOR := func(text string) string {
		var value map[string]any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		return string(encodeCBOR(t, value))
	}
	object := func(levels int) string { return `{"a":` + nested(levels-1) + `}` }
	for name, tc := range map[string]struct {
		method, media, body string
		status              int
	}{
		"JSON at the limit":               {"POST", "application/json", object(lowLimit), 200},
		"JSON above the limit":            {"POST", "application/json", object(lowLimit + 1), 400},
		"no media type":                   {"PUT", "", object(lowLimit + 1), 400},
		"a media type with parameters":    {"PUT", "Application/JSON; charset=utf-8", object(lowLimit + 1), 400},
		"an unknown media type":           {"PUT", "text/plain;;", object(lowLimit + 1), 400},
		"YAML at the limit":               {"POST", "application/yaml", toYAML(object(lowLimit)), 200},
		"YAML above the limit":            {"POST", "application/yaml", toYAML(object(lowLimit + 1)), 400},
		"CBOR at the limit":               {"POST", "application/cbor", toCBOR(object(lowLimit)), 200},
		"CBOR above the limit":            {"POST", "application/cbor", toCBOR(object(lowLimit + 1)), 400},
		"an apply configuration":          {"PATCH", "application/apply-patch+yaml", toYAML(object(lowLimit + 1)), 400},
		"an apply configuration in CBOR":  {"PATCH", "application/apply-patch+cbor", toCBOR(object(lowLimit + 1)), 400},
		"a merge patch":                   {"PATCH", "application/merge-patch+json", object(lowLimit + 1), 400},
		"a strategic merge patch":         {"PATCH", "application/strategic-merge-patch+json", object(lowLimit + 1), 400},
		"a JSON patch":                    {"PATCH", "application/json-patch+json", `[{"op":"add","path":"/a","value":` + nested(lowLimit) + `}]`, 400},
		"options of a deletion":           {"DELETE", "application/json", object(lowLimit + 1), 400},
		"a request that has no body":      {"DELETE", "application/json", "", 200},
		"a body above the limit of bytes": {"POST", "application/json", `{"a":"` + strings.Repeat("a", 1000) + `"}`, 413},
		"a definition above its limit":    {"POST", "application/json;definition", `{"a":"` + strings.Repeat("a", 200) + `"}`, 413},
	} {
		t.Run(name, func(t *testing.T) {
			handler := WithBodyLimits(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if body, err := io.ReadAll(req.Body); err != nil || string(body) != tc.body {
					t.Errorf("the handler reads %q, %v", body, err)
				}
			}), BodyConfig{Levels: lowLimit, MaxBytes: 500, WriteError: func(err error, w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(int(err.(apierrors.APIStatus).Status().Code)) // every error is one
			}, MaxBytesOf: func(req *http.Request) (int64, string) {
				if strings.HasSuffix(req.Header.Get("Content-Type"), "definition") {
					return 100, "a definition"
				}
				return 0, ""
			}})
			request := httptest.NewRequest(tc.method, "/", strings.NewReader(tc.body))
			request.Header.Set("Content-Type", tc.media)
			response := httptest.NewRecorder()
			if handler.ServeHTTP(response, request); response.Code != tc.status {
				t.Errorf("status %d, want %d", response.Code, tc.status)
			}
		})
	}
}

func encodeCBOR(t *testing.T, value map[string]any) []byte {
	t.Helper()
	out, err := direct.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
