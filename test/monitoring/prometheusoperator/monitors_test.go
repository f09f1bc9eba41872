// Package prometheusoperator shows the configuration that the operator of Prometheus creates from the monitors and rules of
// config/prometheus and of the chart. It is a separate module, because that operator needs other versions of Kubernetes' libraries.
package prometheusoperator

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus-operator/prometheus-operator/pkg/assets"
	"github.com/prometheus-operator/prometheus-operator/pkg/operator"
	"github.com/prometheus-operator/prometheus-operator/pkg/prometheus"
	prometheusclient "github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden file instead of comparing with it")

const (
	repository = "../../.."
	// golden is the scrape configuration, which test/monitoring checks with promtool.
	golden = "../testdata/prometheus-operator.yaml"
	// version is an old one of Prometheus that is still in use: Debian's.
	version = "v2.42.0"
)

// objects returns the objects of a kind in files, by namespace and name.
func objects(t *testing.T, kind string) map[string]*unstructured.Unstructured {
	t.Helper()
	found := map[string]*unstructured.Unstructured{}
	for file, namespace := range map[string]string{
		"config/prometheus/monitor.yaml": "", "config/prometheus/alerts.yaml": "", "config/prometheus/installation/alerts.yaml": "monitoring",
		"config/prometheus/servers/monitors.yaml": "kcp", "test/clients/charts/testdata/operator.yaml": "",
	} {
		text, err := os.ReadFile(filepath.Join(repository, file))
		if err != nil {
			t.Fatal(err)
		}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &object.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if object.GetKind() != kind {
				continue
			}
			if namespace != "" {
				object.SetNamespace(namespace)
			}
			found[object.GetNamespace()+"/"+object.GetName()] = object
		}
	}
	if len(found) == 0 {
		t.Fatalf("there is no %s", kind)
	}
	return found
}

// TestSchemas validates monitors and rules by the definitions of the operator of Prometheus. A field that these do not have is an error.
func TestSchemas(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus-operator/prometheus-operator").Output()
	if err != nil {
		t.Fatal(err)
	}
	for kind, check := range map[string]func([]byte) error{
		"ServiceMonitor": strictly[monitoringv1.ServiceMonitor], "PodMonitor": strictly[monitoringv1.PodMonitor], "PrometheusRule": strictly[monitoringv1.PrometheusRule],
	} {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "example/prometheus-operator-crd", "monitoring.coreos.com_"+strings.ToLower(kind)+"s.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		definition, schema := &apiextensionsv1.CustomResourceDefinition{}, &apiextensions.JSONSchemaProps{}
		if err := yaml.Unmarshal(text, definition); err != nil {
			t.Fatal(err)
		}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, schema, nil); err != nil {
			t.Fatal(err)
		}
		validator, _, err := validation.NewSchemaValidator(schema)
		if err != nil {
			t.Fatal(err)
		}
		for name, object := range objects(t, kind) {
			if errs := validation.ValidateCustomResource(nil, object.Object, validator); len(errs) > 0 {
				t.Errorf("%s %s: %v", kind, name, errs.ToAggregate())
			}
			content, err := yaml.Marshal(object.Object)
			if err := errors.Join(err, check(content)); err != nil {
				t.Errorf("%s %s: %v", kind, name, err)
			}
		}
	}
}

func strictly[T any](content []byte) error { return yaml.UnmarshalStrict(content, new(T)) }

// TestScrapeConfiguration shows that the operator of Prometheus accepts the monitors, and checks the configuration that it writes.
func TestScrapeConfiguration(t *testing.T) {
	everything, logger := &metav1.LabelSelector{}, slog.New(slog.DiscardHandler)
	server := &monitoringv1.Prometheus{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "k8s"}, Spec: monitoringv1.PrometheusSpec{EvaluationInterval: "30s", CommonPrometheusFields: monitoringv1.CommonPrometheusFields{
		Version: version, ScrapeInterval: "30s",
		ServiceMonitorSelector: everything, ServiceMonitorNamespaceSelector: everything, PodMonitorSelector: everything, PodMonitorNamespaceSelector: everything,
	}}}
	client := fake.NewClientset(secrets(t)...)
	store := assets.NewStoreBuilder(client.CoreV1(), client.CoreV1())
	namespaces := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Namespace{}, 0, nil)
	for _, kind := range []string{"ServiceMonitor", "PodMonitor"} {
		for _, object := range objects(t, kind) {
			if err := namespaces.GetStore().Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: object.GetNamespace()}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	selector, err := prometheus.NewResourceSelector(logger, server, store, namespaces, operator.NewMetrics(prometheusclient.NewRegistry()), record.NewFakeRecorder(100))
	if err != nil {
		t.Fatal(err)
	}
	services, err := selector.SelectServiceMonitors(t.Context(), list[monitoringv1.ServiceMonitor](t))
	if err != nil {
		t.Fatal(err)
	}
	pods, err := selector.SelectPodMonitors(t.Context(), list[monitoringv1.PodMonitor](t))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(services.ValidResources())+len(pods.ValidResources()), len(objects(t, "ServiceMonitor"))+len(objects(t, "PodMonitor")); got != want {
		t.Errorf("%d monitors are accepted, want %d", got, want)
	}
	generator, err := prometheus.NewConfigGenerator(logger, server)
	if err != nil {
		t.Fatal(err)
	}
	configuration, err := generator.GenerateServerConfiguration(server, services.ValidResources(), pods.ValidResources(), nil, nil, store, nil, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, configuration, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(configuration)); diff != "" {
		t.Errorf("%s differs; go test -update writes it (-want +got):\n%s", golden, diff)
	}
}

// list returns the function that lists the monitors of a type.
func list[T any](t *testing.T) prometheus.ListAllByNamespaceFn {
	kind := "PodMonitor"
	if _, ok := any(new(T)).(*monitoringv1.ServiceMonitor); ok {
		kind = "ServiceMonitor"
	}
	return func(namespace string, _ labels.Selector, add cache.AppendFunc) error {
		for _, object := range objects(t, kind) {
			content, err := yaml.Marshal(object.Object)
			if err != nil {
				return err
			}
			monitor := new(T)
			if err := yaml.UnmarshalStrict(content, monitor); err != nil {
				return err
			}
			if object.GetNamespace() == namespace {
				add(monitor)
			}
		}
		return nil
	}
}

// secrets are those that the monitors name. The operator of Prometheus reads the certificates.
func secrets(t *testing.T) []runtime.Object {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	data := map[string][]byte{"ca.crt": public, "tls.crt": public, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})}
	var found []runtime.Object
	for namespace, names := range map[string][]string{
		"atoll-system": {"atoll-metrics"}, "kcp-system": {"kcp-atoll-operator-metrics"},
		"kcp": {"root-server", "cache-server", "kubeconfig-cert-prometheus-shards", "kubeconfig-cert-prometheus-front-proxies"},
	} {
		for _, name := range names {
			found = append(found, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data})
		}
	}
	return found
}
