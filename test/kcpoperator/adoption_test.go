package kcpoperator

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
	"github.com/atoll-dev/atoll/test/kubeapiserver"
	"github.com/atoll-dev/atoll/test/kubeapiserver/operatorapi"
	"github.com/atoll-dev/atoll/test/programs"
)

// env is a cluster with an installation of kcp-operator.
type env struct {
	client.Client
	cluster *kubeapiserver.Cluster
	bin     string
	ca      *shardtesting.CA
}

// TestOperator tests both tasks with one API server.
func TestOperator(t *testing.T) {
	e := newEnv(t)
	t.Run("certificate authorities get other keys", e.testRekey)
	t.Run("an installation is adopted", e.testAdoption)
}

// testAdoption: the operator takes over the objects of kcp-operator after the owners of its second group are deleted.
func (e *env) testAdoption(t *testing.T) {
	e.install(t)
	before := e.observe(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	installation.WriteKubeconfig(t, e.cluster.Config, kubeconfig)
	programs.Start(t, t.TempDir(), filepath.Join(e.bin, "operator"), "--kubeconfig="+kubeconfig, "--default-image=atoll:test", "--health-probe-bind-address=0")

	t.Run("while their former owners exist, Deployments stay as they are", func(t *testing.T) {
		for _, source := range sources() {
			shardtesting.Eventually(t, "the condition of "+source.GetName(), func(ctx context.Context) error {
				if err := errors.Join(e.issue(ctx, t), e.Get(ctx, client.ObjectKeyFromObject(source), source)); err != nil {
					return err
				}
				condition := meta.FindStatusCondition(conditions(source), operatorv1alpha1.ConditionSpecHonored)
				if condition == nil || condition.Reason != "NameTaken" || !strings.Contains(condition.Message, "--cascade=orphan") {
					return fmt.Errorf("%+v", conditions(source))
				}
				return nil
			})
		}
		for name, deployment := range e.observe(t).deployments {
			if !equality.Semantic.DeepEqual(deployment.Spec, before.deployments[name].Spec) {
				t.Errorf("%s has changed", name)
			}
		}
	})
	e.orphan(t)
	for _, server := range formerServers() {
		shardtesting.Eventually(t, server.name+" is adopted", func(ctx context.Context) error {
			deployment := &appsv1.Deployment{}
			err := errors.Join(e.issue(ctx, t), e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: server.name}, deployment))
			owner := metav1.GetControllerOf(deployment)
			if err != nil || owner == nil || owner.APIVersion != "operator.kcp.io/v1alpha1" || deployment.Spec.Template.Spec.Containers[0].Image != "atoll:test" {
				return errors.Join(err, fmt.Errorf("its owner is %v, its image %s", owner, deployment.Spec.Template.Spec.Containers[0].Image))
			}
			return nil
		})
	}
	for _, source := range sources() {
		shardtesting.Eventually(t, "the spec of "+source.GetName()+" is honored", func(ctx context.Context) error {
			if err := errors.Join(e.issue(ctx, t), e.Get(ctx, client.ObjectKeyFromObject(source), source)); err != nil {
				return err
			}
			if stalled := meta.FindStatusCondition(conditions(source), operatorv1alpha1.ConditionStalled); stalled == nil || stalled.Status != metav1.ConditionFalse {
				return fmt.Errorf("%+v", conditions(source))
			}
			return nil
		})
	}
	after := e.observe(t)
	t.Run("Deployments stay, with their selectors and replicas", func(t *testing.T) { checkDeployments(t, before, after) })
	t.Run("Services stay, with their addresses", func(t *testing.T) { checkServices(t, before, after) })
	t.Run("authorities and signing keys stay", func(t *testing.T) { checkKeys(t, before, after) })
}

func newEnv(t *testing.T) *env {
	t.Helper()
	bin, root := t.TempDir(), "../.."
	if err := programs.Build(t.Context(), root, bin, "./cmd/operator", "./cmd/etcd"); err != nil {
		t.Fatal(err)
	}
	cluster, c := operatorapi.Start(t, root, bin)
	return &env{Client: c, cluster: cluster, bin: bin, ca: shardtesting.NewCA(t, "installation")}
}

// install creates the custom resources, and the objects that kcp-operator and cert-manager would create for them.
func (e *env) install(t *testing.T) {
	t.Helper()
	create := func(manager string, object client.Object) {
		shardtesting.Eventually(t, "creation of "+object.GetName(), func(ctx context.Context) error {
			err := e.Create(ctx, object, client.FieldOwner(manager))
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	create("kubectl", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	create("kubectl", &certmanagerv1.Issuer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: userIssuer},
		Spec: certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{SelfSigned: &certmanagerv1.SelfSignedIssuer{}}}})
	all := sources()
	for _, source := range all {
		create("kubectl", source)
	}
	kinds := map[client.Object]string{all[0]: "RootShard", all[1]: "Shard", all[2]: "FrontProxy"}
	for _, former := range formerCertificates(all[0], all[1], all[2]) {
		create("manager", former.object(kinds[former.owner]))
		create("cert-manager-certificates-issuing", issue(t, e.ca, former.name))
		if former.isCA {
			create("manager", &certmanagerv1.Issuer{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: former.name, OwnerReferences: sourceOwner(former.owner, kinds[former.owner])},
				Spec:       certmanagerv1.IssuerSpec{IssuerConfig: certmanagerv1.IssuerConfig{CA: &certmanagerv1.CAIssuer{SecretName: former.name}}},
			})
		}
	}
	for _, server := range formerServers() {
		for _, object := range server.objects() {
			create("manager", object)
		}
		for _, mounted := range server.secrets {
			_, name := split(mounted)
			create("manager", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: generatedOwner(name, all)},
				Data: map[string][]byte{"kubeconfig": []byte("former"), "tls.crt": []byte("former")}})
		}
	}
	if err := e.issue(t.Context(), t); err != nil {
		t.Fatal(err)
	}
}

// generatedOwner is the owner of a Secret that no Certificate has: the dynamic kubeconfigs are those of the second group.
func generatedOwner(name string, sources []client.Object) []metav1.OwnerReference {
	switch {
	case name == "root-proxy-dynamic-kubeconfig":
		return compiledOwner("CompiledRootShard", "root")
	case name == "root-front-dynamic-kubeconfig":
		return compiledOwner("CompiledFrontProxy", "front")
	case strings.HasPrefix(name, "alpha-"):
		return sourceOwner(sources[1], "Shard")
	case strings.HasPrefix(name, "front-"):
		return sourceOwner(sources[2], "FrontProxy")
	}
	return sourceOwner(sources[0], "RootShard")
}

func split(volume string) (name, secret string) {
	name, secret, _ = strings.Cut(volume, "=")
	return name, secret
}

// issue does once what cert-manager and the controller of Deployments do continuously: Certificates become ready, with Secrets, and pods
// run.
func (e *env) issue(ctx context.Context, t *testing.T) error {
	var certificates certmanagerv1.CertificateList
	if err := e.List(ctx, &certificates, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range certificates.Items {
		c := &certificates.Items[i]
		if len(c.Status.Conditions) > 0 && c.Status.Conditions[0].ObservedGeneration == c.Generation {
			continue
		}
		if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: c.Spec.SecretName}, &corev1.Secret{}); apierrors.IsNotFound(err) {
			if err := e.Create(ctx, issue(t, e.ca, c.Spec.SecretName)); err != nil {
				return err
			}
		}
		c.Status.Conditions = []certmanagerv1.CertificateCondition{{Type: certmanagerv1.CertificateConditionReady, Status: cmmeta.ConditionTrue, ObservedGeneration: c.Generation}}
		if err := e.Status().Update(ctx, c); err != nil {
			return err
		}
	}
	var deployments appsv1.DeploymentList
	if err := e.List(ctx, &deployments, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		if d.Status.ObservedGeneration == d.Generation {
			continue
		}
		replicas := *d.Spec.Replicas
		d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
		if err := e.Status().Update(ctx, d, client.FieldOwner("kube-controller-manager")); err != nil {
			return err
		}
	}
	return nil
}

// orphan removes owner references like the garbage collector when the compiled objects are deleted with --cascade=orphan.
func (e *env) orphan(t *testing.T) {
	t.Helper()
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{}, &corev1.SecretList{}} {
		if err := e.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			object := item.(client.Object)
			if owner := metav1.GetControllerOf(object); owner == nil || !strings.HasPrefix(owner.APIVersion, "deploy.operator.kcp.io/") {
				return nil
			}
			return e.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`)), client.FieldOwner("kube-controller-manager"))
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// observed contains the objects of the installation by name.
type observed struct {
	deployments  map[string]appsv1.Deployment
	services     map[string]corev1.Service
	secrets      map[string]corev1.Secret
	certificates map[string]certmanagerv1.Certificate
}

func (e *env) observe(t *testing.T) observed {
	t.Helper()
	var deployments appsv1.DeploymentList
	var services corev1.ServiceList
	var secrets corev1.SecretList
	var certificates certmanagerv1.CertificateList
	for _, list := range []client.ObjectList{&deployments, &services, &secrets, &certificates} {
		if err := e.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
	}
	return observed{byName(deployments.Items), byName(services.Items), byName(secrets.Items), byName(certificates.Items)}
}

func byName[T any, P interface {
	*T
	client.Object
}](items []T) map[string]T {
	found := map[string]T{}
	for i := range items {
		found[P(&items[i]).GetName()] = items[i]
	}
	return found
}

func conditions(source client.Object) []metav1.Condition {
	switch source := source.(type) {
	case *operatorv1alpha1.RootShard:
		return source.Status.Conditions
	case *operatorv1alpha1.Shard:
		return source.Status.Conditions
	case *operatorv1alpha1.FrontProxy:
		return source.Status.Conditions
	}
	return nil
}

func checkDeployments(t *testing.T, before, after observed) {
	if len(after.deployments) != len(before.deployments) {
		t.Errorf("there are %d Deployments, want %d", len(after.deployments), len(before.deployments))
	}
	for name, former := range before.deployments {
		adopted := after.deployments[name]
		if adopted.UID != former.UID || !equality.Semantic.DeepEqual(adopted.Spec.Selector, former.Spec.Selector) || *adopted.Spec.Replicas != *former.Spec.Replicas {
			t.Errorf("%s: UID %s, selector %v, %d replicas; want %s, %v, %d", name, adopted.UID, adopted.Spec.Selector, *adopted.Spec.Replicas,
				former.UID, former.Spec.Selector, *former.Spec.Replicas)
		}
		pod := adopted.Spec.Template
		if len(pod.Spec.Containers) != 1 || pod.Labels["operator.kcp.io/secret-0123456789abcdef0123-rev"] != "" {
			t.Errorf("%s has pods with %d containers and the labels %v", name, len(pod.Spec.Containers), pod.Labels)
		}
		for _, mount := range pod.Spec.Containers[0].VolumeMounts {
			if strings.HasPrefix(mount.MountPath, "/former/") {
				t.Errorf("%s still mounts %s", name, mount.Name)
			}
		}
		for _, volume := range pod.Spec.Volumes {
			if !slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(mount corev1.VolumeMount) bool { return mount.Name == volume.Name }) {
				t.Errorf("%s still has the volume %s", name, volume.Name)
			}
		}
	}
}

func checkServices(t *testing.T, before, after observed) {
	for name, former := range before.services {
		adopted := after.services[name]
		if adopted.UID != former.UID || adopted.Spec.ClusterIP != former.Spec.ClusterIP || !equality.Semantic.DeepEqual(adopted.Spec.Selector, former.Spec.Selector) {
			t.Errorf("%s: %s, %+v; want %s, %+v", name, adopted.UID, adopted.Spec, former.UID, former.Spec)
		}
	}
}

// checkKeys checks that cert-manager has no reason to issue the certificates of authorities and of signing keys again.
func checkKeys(t *testing.T, before, after observed) {
	checked := 0
	for name, former := range before.certificates {
		adopted := after.certificates[name]
		if adopted.UID != former.UID {
			t.Errorf("Certificate %s is another one", name)
		}
		if !former.Spec.IsCA && !strings.HasSuffix(name, "-service-account") {
			continue
		}
		checked++
		if adopted.Spec.PrivateKey.RotationPolicy != certmanagerv1.RotationPolicyNever {
			t.Errorf("the key of %s is replaced when it is renewed", name)
		}
		adopted.Spec.PrivateKey.RotationPolicy = former.Spec.PrivateKey.RotationPolicy
		adopted.Spec.SecretTemplate = former.Spec.SecretTemplate // labels are written without a new certificate
		if !equality.Semantic.DeepEqual(adopted.Spec, former.Spec) {
			t.Errorf("Certificate %s is issued again: %+v, want %+v", name, adopted.Spec, former.Spec)
		}
		if !equality.Semantic.DeepEqual(after.secrets[name].Data, before.secrets[name].Data) || after.secrets[name].UID != before.secrets[name].UID {
			t.Errorf("Secret %s has changed", name)
		}
	}
	if checked != 7 {
		t.Errorf("%d certificates have keys that stay, want 7", checked)
	}
	for _, name := range []string{"root-client", "alpha-client"} {
		if subject := after.certificates[name].Spec.Subject; subject != nil && slices.Contains(subject.Organizations, "system:masters") {
			t.Errorf("%s is still a certificate of system:masters", name)
		}
	}
}
