//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
)

const (
	agentSamples   = "../../config/samples/sync-agent/"
	agentNamespace = "sync-agent" // of config/sync-agent
	agentName      = "certificates-syncagent"
	agentLease     = "syncagent." + agentName        // of the agent of the samples
	agentSecret    = "sync-agent-certificates"       // of the samples
	labelAgent     = "syncagent.kcp.io/agent-name"   // of copies
	labelState     = "syncagent.kcp.io/object-state" // of Secrets with the state of objects
	labelCluster   = "syncagent.kcp.io/remote-object-cluster"
	consumerSecret = "shop-tls" // of the samples
)

// testSyncAgent runs the samples of the sync agent: two replicas on pods that publish cert-manager's Certificates to
// consumers on two shards. It leaves nothing behind.
func (in *installation) testSyncAgent(t *testing.T) {
	provider := in.createWorkspaceOn(t, "root", "certificates", "alpha")
	provider.apply(t, sample(t, "provider.yaml"))
	in.deployAgent(t)
	t.Cleanup(func() { in.removeAgent(t) })

	consumers := map[string]workspace{}
	for _, shard := range []string{"root", "beta"} {
		consumer := in.createWorkspaceOn(t, "root", "shop-"+shard, shard)
		consumer.apply(t, sample(t, "binding.yaml"))
		consumers[shard] = consumer
	}
	for _, consumer := range consumers {
		consumer.apply(t, sample(t, "certificate.yaml"))
	}
	for _, consumer := range consumers {
		consumer.expectCertificate(t, "shop", consumerSecret, nil)
	}
	in.expectCopies(t, consumers, 1)
	in.testRenewalOfCopy(t, consumers["beta"])
	in.testAgentKill(t, consumers["root"])
	in.expectCopies(t, map[string]workspace{"root": consumers["root"]}, 2)

	for _, consumer := range consumers {
		consumer.deleteCertificates(t)
	}
	in.expectNoCopies(t)
	// A Kubeconfig is not Ready without its workspace.
	if err := in.host.Delete(t.Context(), &operatorv1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: agentSecret}}); err != nil {
		t.Fatal(err)
	}
	for _, w := range []workspace{consumers["root"], consumers["beta"], provider} {
		in.deleteWorkspace(t, w)
	}
}

func sample(t *testing.T, name string) string {
	t.Helper()
	return readFile(t, agentSamples+name)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// agentManifests returns the manifests of the agent on the service cluster, which is the cluster of the operator here.
func agentManifests(t *testing.T) []*unstructured.Unstructured {
	return kustomized(t, agentSamples+"agent")
}

// kustomized returns the objects of a folder.
func kustomized(t *testing.T, folder string) (out []*unstructured.Unstructured) {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatalf("kustomize build %s: %v", folder, err)
	}
	for _, resource := range built.Resources() {
		out = append(out, parseObjects(t, resource.MustYaml())...)
	}
	return out
}

func parseObjects(t *testing.T, manifest string) (out []*unstructured.Unstructured) {
	t.Helper()
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// deployAgent installs the agent with a kubeconfig that the operator writes, and publishes Certificates.
func (in *installation) deployAgent(t *testing.T) {
	t.Helper()
	in.apply(t, agentManifests(t)...)
	in.podKubeconfig(t, sample(t, "kubeconfig.yaml"), agentNamespace)
	in.waitReplicas(t, agentNamespace, "sync-agent", 2)
	publication := parseObjects(t, sample(t, "publishedresource.yaml"))
	in.apply(t, append(parseObjects(t, sample(t, "issuer.yaml")), publication...)...)
	eventually(t, time.Minute, "the schema in the export", func(ctx context.Context) error {
		if err := in.host.Get(ctx, client.ObjectKeyFromObject(publication[0]), publication[0]); err != nil {
			return err
		}
		if c := condition(publication[0], "Exported"); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("condition Exported is %+v", c)
		}
		return nil
	})
}

// podKubeconfig has the operator write a kubeconfig, and puts it into a namespace as pods there expect it.
func (in *installation) podKubeconfig(t *testing.T, manifest, into string) {
	t.Helper()
	kubeconfig := parseObjects(t, manifest)[0]
	kubeconfig.SetNamespace(in.namespace)
	in.apply(t, kubeconfig)
	eventually(t, 5*time.Minute, "the kubeconfig "+kubeconfig.GetName(), in.allReady)
	content := in.kubeconfigFile(t, kubeconfig.GetName())
	if in.route.clusterIP == "" { // pods do not reach a port-forward of this host
		outside := fmt.Sprintf("https://%s:%d/", in.route.host, in.route.port)
		content = bytes.ReplaceAll(content, []byte(outside), []byte("https://frontproxy-front-proxy."+in.namespace+".svc.cluster.local:6443/"))
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: into, Name: "kcp-kubeconfig"}, Data: map[string][]byte{"kubeconfig": content}}
	if err := in.host.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
}

// waitReplicas waits until a Deployment has ready replicas.
func (in *installation) waitReplicas(t *testing.T, namespace, name string, want int32) {
	t.Helper()
	eventually(t, 2*time.Minute, fmt.Sprintf("%d ready replicas of %s", want, name), func(ctx context.Context) error {
		deployment := &appsv1.Deployment{}
		if err := in.host.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, deployment); err != nil {
			return err
		}
		if deployment.Status.ReadyReplicas != want {
			return fmt.Errorf("%d replicas are ready", deployment.Status.ReadyReplicas)
		}
		return nil
	})
}

// removeAgent must work after t's context has ended.
func (in *installation) removeAgent(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if t.Failed() {
		var out bytes.Buffer
		in.dumpPods(ctx, &out, agentNamespace)
		t.Logf("the agent at the failure:\n%s", out.String())
		if os.Getenv("E2E_KEEP") != "" {
			return
		}
	}
	objects := append(agentManifests(t), parseObjects(t, sample(t, "issuer.yaml"))...)
	objects = append(objects, parseObjects(t, sample(t, "publishedresource.yaml"))...)
	objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "cert-manager", "name": "consumers-ca"},
	}})
	// cert-manager keeps the Secrets of deleted Certificates, so the namespaces of copies are not empty.
	in.removeObjects(ctx, t, objects, client.MatchingLabels{labelAgent: agentName}, agentNamespace)
}

// removeObjects deletes objects in reverse order, and the namespaces with labels. It waits until a namespace among the objects does not
// exist any more.
func (in *installation) removeObjects(ctx context.Context, t *testing.T, objects []*unstructured.Unstructured, made client.MatchingLabels, last string) {
	for _, object := range slices.Backward(objects) {
		if err := in.host.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	namespaces := &corev1.NamespaceList{}
	if err := in.host.List(ctx, namespaces, made); err != nil {
		t.Errorf("list namespaces: %v", err)
	}
	for i := range namespaces.Items {
		if err := in.host.Delete(ctx, &namespaces.Items[i]); client.IgnoreNotFound(err) != nil {
			t.Errorf("delete namespace %s: %v", namespaces.Items[i].Name, err)
		}
	}
	for {
		err := in.host.Get(ctx, client.ObjectKey{Name: last}, &corev1.Namespace{})
		if apierrors.IsNotFound(err) {
			return
		}
		if ctx.Err() != nil {
			t.Errorf("namespace %s is not deleted: %v", last, err)
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
}

func (w workspace) certificate(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("certificates.example.com/v1")
	u.SetKind("Certificate")
	u.SetNamespace(metav1.NamespaceDefault)
	u.SetName(name)
	return u
}

// expectCertificate waits until a Certificate is Ready and its Secret has another certificate than before. It returns
// that.
func (w workspace) expectCertificate(t *testing.T, name, secretName string, before *x509.Certificate) (issued *x509.Certificate) {
	t.Helper()
	eventually(t, time.Minute, "Certificate "+name+" and its Secret in "+w.path, func(ctx context.Context) error {
		certificate := w.certificate(name)
		if err := newClient(t, w.config).Get(ctx, client.ObjectKeyFromObject(certificate), certificate); err != nil {
			return err
		}
		if c := condition(certificate, "Ready"); c == nil || c.Status != metav1.ConditionTrue {
			return fmt.Errorf("condition Ready is %+v", c)
		}
		secret := &corev1.Secret{}
		if err := w.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: secretName}, secret); err != nil {
			return err
		}
		block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
		if block == nil {
			return errors.New("the Secret has no certificate")
		}
		var err error
		if issued, err = x509.ParseCertificate(block.Bytes); err != nil {
			return err
		}
		if before != nil && issued.SerialNumber.Cmp(before.SerialNumber) == 0 {
			return errors.New("the Secret has the certificate from before the renewal")
		}
		revision, _, _ := unstructured.NestedInt64(certificate.Object, "status", "revision")
		if before != nil && revision != 2 {
			return fmt.Errorf("revision in the status is %d", revision)
		}
		return nil
	})
	// The consumer's own issuerRef is replaced by that of the owner.
	if issued.Issuer.CommonName != "consumers" {
		t.Errorf("the certificate in %s is issued by %s", w.path, issued.Issuer)
	}
	if err := issued.VerifyHostname(name + ".example.com"); err != nil {
		t.Error(err)
	}
	return issued
}

func (in *installation) copies(ctx context.Context, labels client.MatchingLabels) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("cert-manager.io/v1")
	list.SetKind("CertificateList")
	err := in.host.List(ctx, list, labels)
	return list.Items, err
}

// expectCopies checks how many copies each consumer has on the service cluster.
func (in *installation) expectCopies(t *testing.T, consumers map[string]workspace, want int) {
	t.Helper()
	for shard, consumer := range consumers {
		copies, err := in.copies(t.Context(), client.MatchingLabels{labelCluster: consumer.cluster})
		if err != nil || len(copies) != want {
			t.Errorf("the consumer on %s has %d copies, want %d: %v", shard, len(copies), want, err)
		}
	}
}

// testRenewalOfCopy renews a certificate on the service cluster. The Secret and the status in the workspace follow.
func (in *installation) testRenewalOfCopy(t *testing.T, consumer workspace) {
	t.Helper()
	before := consumer.expectCertificate(t, "shop", consumerSecret, nil)
	copies, err := in.copies(t.Context(), client.MatchingLabels{labelCluster: consumer.cluster})
	if err != nil || len(copies) != 1 {
		t.Fatalf("%d copies: %v", len(copies), err)
	}
	in.renew(t, client.ObjectKeyFromObject(&copies[0]))
	consumer.expectCertificate(t, "shop", consumerSecret, before)
}

// testAgentKill deletes the pod of the leader without grace. The other replica continues.
func (in *installation) testAgentKill(t *testing.T, consumer workspace) {
	t.Helper()
	leader := in.agentLeader(t)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: leader}}
	if err := in.host.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	consumer.apply(t, strings.NewReplacer("name: shop", "name: blog", "shop-tls", "blog-tls", "shop.example.com", "blog.example.com").Replace(sample(t, "certificate.yaml")))
	consumer.expectCertificate(t, "blog", "blog-tls", nil)
	if next := in.agentLeader(t); next == leader {
		t.Errorf("%s still holds the lease", leader)
	}
}

// agentLeader returns the name of the pod that holds the lease.
func (in *installation) agentLeader(t *testing.T) (pod string) {
	t.Helper()
	return leader(t, in.host, client.ObjectKey{Namespace: agentNamespace, Name: agentLease})
}

// leader returns the name of the pod that holds a lease.
func leader(t *testing.T, c client.Client, key client.ObjectKey) (pod string) {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := c.Get(t.Context(), key, lease); err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		t.Fatalf("nobody holds the lease %s", key.Name)
	}
	pod, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod
}

// deleteCertificates deletes all Certificates of a workspace and waits until they and their Secrets do not exist any more.
func (w workspace) deleteCertificates(t *testing.T) {
	t.Helper()
	c := newClient(t, w.config)
	if err := c.DeleteAllOf(t.Context(), w.certificate(""), client.InNamespace(metav1.NamespaceDefault)); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "the deletion of the Certificates and Secrets in "+w.path, func(ctx context.Context) error {
		certificates := &unstructured.UnstructuredList{}
		certificates.SetGroupVersionKind(w.certificate("").GroupVersionKind())
		if err := c.List(ctx, certificates); err != nil {
			return err
		}
		secrets := &corev1.SecretList{}
		if err := w.client.List(ctx, secrets, client.InNamespace(metav1.NamespaceDefault)); err != nil {
			return err
		}
		if len(certificates.Items)+len(secrets.Items) > 0 {
			return fmt.Errorf("%d Certificates and %d Secrets remain", len(certificates.Items), len(secrets.Items))
		}
		return nil
	})
}

// expectNoCopies checks that the service cluster has nothing of the consumers: no copy and no state.
func (in *installation) expectNoCopies(t *testing.T) {
	t.Helper()
	eventually(t, 30*time.Second, "the deletion of copies and states", func(ctx context.Context) error {
		copies, err := in.copies(ctx, client.MatchingLabels{labelAgent: agentName})
		if err != nil {
			return err
		}
		states := &corev1.SecretList{}
		if err := in.host.List(ctx, states, client.MatchingLabels{labelState: "true"}); err != nil {
			return err
		}
		if len(copies)+len(states.Items) > 0 {
			return fmt.Errorf("%d copies and %d states remain", len(copies), len(states.Items))
		}
		return nil
	})
}

// deleteWorkspace deletes a workspace below root and waits until it does not exist any more.
func (in *installation) deleteWorkspace(t *testing.T, w workspace) {
	t.Helper()
	root := newClient(t, workspaceConfig(in.admin, "root"))
	ws := &unstructured.Unstructured{}
	ws.SetAPIVersion("tenancy.kcp.io/v1alpha1")
	ws.SetKind("Workspace")
	ws.SetName(w.path[strings.LastIndex(w.path, ":")+1:])
	if err := root.Delete(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	eventually(t, 3*time.Minute, "the deletion of workspace "+w.path, func(ctx context.Context) error {
		err := root.Get(ctx, client.ObjectKeyFromObject(ws), ws)
		if err == nil {
			return errors.New("it exists")
		}
		return client.IgnoreNotFound(err)
	})
}
