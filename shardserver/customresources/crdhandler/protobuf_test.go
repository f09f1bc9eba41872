package crdhandler

import (
	"encoding/json"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// An object that a client sends in protobuf is the same as in JSON, with the lists and maps that are empty.
func TestEmptyListsInProtobuf(t *testing.T) {
	container := corev1.Container{Name: "a", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1")}}}
	codec := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	for name, object := range map[string]runtime.Object{
		"a Deployment without containers": &appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			Spec:     appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{}}}},
		},
		"a Deployment with a container": &appsv1.Deployment{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			Spec:     appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}}}},
		},
		"an EndpointSlice without endpoints": &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, Endpoints: []discoveryv1.Endpoint{}, Ports: []discoveryv1.EndpointPort{},
		},
		"one with an endpoint without addresses": &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{}}}, Ports: []discoveryv1.EndpointPort{},
		},
		"a Secret, whose lists are optional": &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{"a": {}, "b": []byte("c")}},
	} {
		want, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		message, err := runtime.Encode(codec, object)
		if err != nil {
			t.Fatal(err)
		}
		decoded, _, err := codec.Decode(message, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		decoded.GetObjectKind().SetGroupVersionKind(object.GetObjectKind().GroupVersionKind())
		setEmpty(reflect.ValueOf(decoded))
		got, err := json.Marshal(decoded)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if json.Unmarshal(got, &a) != nil || json.Unmarshal(want, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
}
