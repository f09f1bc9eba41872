//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/atoll-dev/atoll/test/freeport"
	"github.com/atoll-dev/atoll/test/hostcluster"
)

// route is how this host reaches the front proxy. On the development cluster it reaches the addresses of Services and
// pods; on other clusters it uses port-forwards of the API server. In both cases clients use host and port, so these
// are the installation's external address.
type route struct {
	host      string
	port      int
	clusterIP string // assigned to the front proxy's Service; empty where this host does not reach Services
}

func findRoute(t *testing.T, config *rest.Config, host client.Client) route {
	t.Helper()
	kube := &corev1.Service{}
	if err := host.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, kube); err != nil {
		t.Fatalf("the API server's own Service: %v", err)
	}
	conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(t.Context(), "tcp", net.JoinHostPort(kube.Spec.ClusterIP, "443"))
	if err == nil {
		conn.Close()
	}
	if err == nil && strings.Count(kube.Spec.ClusterIP, ".") == 3 && os.Getenv(envRoute) != "forward" {
		ip := hostcluster.FreeServiceIP(t, host, kube.Spec.ClusterIP)
		t.Logf("the front proxy's address is %s: this host reaches Services", ip)
		return route{host: ip, port: 6443, clusterIP: ip}
	}
	listener, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Logf("the front proxy's address is localhost through a port-forward: this host does not reach Services")
	return route{host: "localhost", port: listener.Addr().(*net.TCPAddr).Port}
}

// openFrontProxy makes the front proxy reachable from this host, once its pods run.
func (in *installation) openFrontProxy(t *testing.T) {
	t.Helper()
	if in.route.clusterIP == "" {
		in.forward(t, in.onePod(t, component("front-proxy")), in.route.port, 6443)
	}
}

// podAddress returns the host:port at which this host reaches a port of a pod.
func (in *installation) podAddress(t *testing.T, pod *corev1.Pod, port int) string {
	t.Helper()
	if in.route.clusterIP != "" {
		return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port))
	}
	return net.JoinHostPort("localhost", strconv.Itoa(in.forward(t, pod, 0, port)))
}

func component(name string) client.MatchingLabels {
	return client.MatchingLabels{"app.kubernetes.io/name": "kcp", "app.kubernetes.io/component": name}
}

// onePod returns a ready pod of the installation.
func (in *installation) onePod(t *testing.T, labels client.MatchingLabels) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, time.Minute, fmt.Sprintf("a ready pod with %v", labels), func(ctx context.Context) error {
		pods := &corev1.PodList{}
		if err := in.host.List(ctx, pods, client.InNamespace(in.namespace), labels); err != nil {
			return err
		}
		for i := range pods.Items {
			if podReady(&pods.Items[i]) {
				found = &pods.Items[i]
				return nil
			}
		}
		return fmt.Errorf("none of %d pods is ready", len(pods.Items))
	})
	return found
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// forward opens a port-forward that ends with the installation, and returns the local port. Port 0 selects any.
func (in *installation) forward(t *testing.T, pod *corev1.Pod, localPort, podPort int) int {
	t.Helper()
	clients, err := kubernetes.NewForConfig(in.config)
	if err != nil {
		t.Fatal(err)
	}
	url := clients.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(in.config)
	if err != nil {
		t.Fatal(err)
	}
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url),
		[]string{"127.0.0.1"}, []string{fmt.Sprintf("%d:%d", localPort, podPort)}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var failure error
	go func() {
		defer close(ended)
		failure = forwarder.ForwardPorts()
	}()
	in.closers = append(in.closers, func() { close(stop); <-ended })
	select {
	case <-ready:
	case <-ended:
		t.Fatalf("port-forward to %s: %v", pod.Name, failure)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	return int(ports[0].Local)
}
