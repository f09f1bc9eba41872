package syncer

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestChangedField(t *testing.T) {
	const before = `{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","labels":{"a":"b"},"annotations":{"a":"b"},"finalizers":["x/hold"],"resourceVersion":"1"},"spec":{"size":1},"status":{"phase":"Old"}}`
	for name, tc := range map[string]struct{ from, to, want string }{
		"nothing":                           {"", "", ""},
		"the status":                        {`"Old"`, `"New"`, ""},
		"the resource version":              {`"resourceVersion":"1"`, `"managedFields":[{"manager":"m"}]`, ""},
		"the finalizer is added last":       {`["x/hold"]`, `["x/hold","syncagent.kcp.io/cleanup"]`, ""},
		"the finalizer is added first":      {`["x/hold"]`, `["syncagent.kcp.io/cleanup","x/hold"]`, ""},
		"a finalizer that has its prefix":   {`["x/hold"]`, `["x/hold","syncagent.kcp.io/cleanup-x"]`, "metadata.finalizers"},
		"another finalizer is removed":      {`["x/hold"]`, `["syncagent.kcp.io/cleanup"]`, "metadata.finalizers"},
		"an annotation of a related object": {`"annotations":{"a":"b"`, `"annotations":{"a":"b","related-resources.syncagent.kcp.io/x.0":"y"`, ""},
		"an annotation with another domain": {`"annotations":{"a":"b"`, `"annotations":{"a":"b","x.related-resources.syncagent.kcp.io/x.0":"y"`, "metadata.annotations[x.related-resources.syncagent.kcp.io/x.0]"},
		"an annotation is removed":          {`"annotations":{"a":"b"}`, `"annotations":{}`, "metadata.annotations[a]"},
		"a label is changed":                {`"labels":{"a":"b"}`, `"labels":{"a":"c"}`, "metadata.labels[a]"},
		"a label is added":                  {`"labels":{"a":"b"}`, `"labels":{"a":"b","c":"d"}`, "metadata.labels[c]"},
		"the spec":                          {`"size":1`, `"size":2`, "spec"},
		"the spec is removed":               {`"spec":{"size":1},`, "", "spec"},
		"a field is added":                  {`"spec"`, `"data":{},"spec"`, "data"},
		"an owner":                          {`"name":"n"`, `"name":"n","ownerReferences":[{"name":"x"}]`, "metadata.ownerReferences"},
		"the type":                          {`"K"`, `"L"`, "kind"},
	} {
		t.Run(name, func(t *testing.T) {
			decode := func(text string) *unstructured.Unstructured {
				object := &unstructured.Unstructured{}
				if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
					t.Fatal(err)
				}
				return object
			}
			if got := changedField(decode(before), decode(strings.Replace(before, tc.from, tc.to, 1))); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestConvertList(t *testing.T) {
	names := translation{workspace: kinds{"corp/v1", "Cert", "CertList"}, source: kinds{"cm.io/v2", "Certificate", "CertificateList"}}
	leaveOut := func(raw json.RawMessage) (json.RawMessage, error) {
		if strings.Contains(string(raw), "hidden") {
			return nil, nil
		}
		return names.toSource(raw)
	}
	for name, tc := range map[string]struct{ in, want string }{
		"a list":                 {`{"kind":"CertList","apiVersion":"corp/v1","metadata":{"resourceVersion":"1","remainingItemCount":5},"items":[{"apiVersion":"corp/v1","kind":"Cert","spec":{"kind":"Cert"}},{"x":"hidden"},{"kind":"Cert"}]}`, `{"kind":"CertificateList","apiVersion":"cm.io/v2","metadata":{"resourceVersion":"1"},"items":[{"apiVersion":"cm.io/v2","kind":"Certificate","spec":{"kind":"Cert"}},{"kind":"Certificate"}]}` + "\n"},
		"without items":          {`{"items":null}`, `{"items":null}` + "\n"},
		"no item is left":        {`{"items":[{"x":"hidden"}],"kind":"CertList"}`, `{"items":[],"kind":"CertificateList"}` + "\n"},
		"metadata":               {`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}]}`, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}]}` + "\n"},
		"a list that is cut off": {`{"items":[{"kind":"Cert"}`, ""},
		"an item is cut off":     {`{"items":[{"kind":"Cer`, ""},
		"no list":                {`[]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := names.convertList(&out, strings.NewReader(tc.in), true, leaveOut)
			if (err == nil) != (tc.want != "") || err == nil && out.String() != tc.want {
				t.Errorf("got %s, %v", out.String(), err)
			}
		})
	}
}

func TestRecoverPanic(t *testing.T) {
	if err := recoverPanic(func() error { panic(http.ErrAbortHandler) }); err == nil {
		t.Error("no error")
	}
	if err := recoverPanic(func() error { return nil }); err != nil {
		t.Error(err)
	}
}
