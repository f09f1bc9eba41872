package kcpoperator

import (
	"os"
	"testing"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	cmmeta "github.com/cert-manager/cert-manager/pkg/apis/meta/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

const (
	namespace = "kcp"
	// userIssuer signs the root CA.
	userIssuer = "selfsigned"
)

// sources are the custom resources of the installation.
func sources() []client.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	// No servers exist whose health could admit a rollout.
	now := meta("root")
	now.Annotations = map[string]string{operatorv1alpha1.AnnotationRolloutNow: "true"}
	root := &corev1.LocalObjectReference{Name: "root"}
	etcd := &operatorv1alpha1.EtcdConfig{Endpoints: []string{"http://etcd.kcp.svc:2379"}}
	return []client.Object{
		&operatorv1alpha1.RootShard{ObjectMeta: now, Spec: operatorv1alpha1.RootShardSpec{
			External: operatorv1alpha1.ExternalConfig{Hostname: "kcp.example.com", Port: 6443},
			Certificates: operatorv1alpha1.RootShardCertificates{
				Certificates: operatorv1alpha1.Certificates{IssuerRef: &operatorv1alpha1.IssuerReference{Name: userIssuer}},
			},
			CommonShardSpec: operatorv1alpha1.CommonShardSpec{Etcd: etcd},
		}},
		&operatorv1alpha1.Shard{ObjectMeta: meta("alpha"), Spec: operatorv1alpha1.ShardSpec{
			RootShard:       operatorv1alpha1.RootShardReference{Reference: root},
			CommonShardSpec: operatorv1alpha1.CommonShardSpec{Etcd: &operatorv1alpha1.EtcdConfig{Endpoints: []string{"http://etcd-alpha.kcp.svc:2379"}}},
		}},
		&operatorv1alpha1.FrontProxy{ObjectMeta: meta("front"), Spec: operatorv1alpha1.FrontProxySpec{
			RootShard: operatorv1alpha1.RootShardReference{Reference: root},
		}},
	}
}

// server is a Deployment and Service of kcp-operator.
type server struct {
	name, component, instance string
	owner                     string // kind of its owner, in deploy.operator.kcp.io
	container, command        string
	secrets                   []string // mounted, by the names of volumes that differ from those of Secrets where mapped
	config                    string   // ConfigMap
}

// formerServers lists volumes as "volume=secret".
func formerServers() []server {
	return []server{
		{"root-kcp", "rootshard", "root", "CompiledRootShard", "kcp", "/kcp", []string{
			"kcp-ca=root-ca", "server-ca=root-server-ca", "service-account-ca=root-service-account-ca", "requestheader-client-ca=root-requestheader-client-ca",
			"client-ca=root-client-ca", "server-cert=root-server", "service-account-cert=root-service-account", "client-cert=root-client",
			"logical-cluster-admin-cert=root-logical-cluster-admin", "external-logical-cluster-admin-cert=root-external-logical-cluster-admin",
			"logical-cluster-admin-kubeconfig=root-logical-cluster-admin-kubeconfig",
			"external-logical-cluster-admin-kubeconfig=root-external-logical-cluster-admin-kubeconfig",
		}, ""},
		{"root-proxy", "rootshard-proxy", "root", "CompiledRootShard", "kcp-front-proxy", "/kcp-front-proxy", []string{
			"root-proxy-dynamic-kubeconfig=root-proxy-dynamic-kubeconfig", "root-proxy-kubeconfig=root-proxy-kubeconfig", "root-proxy-server=root-proxy-server",
			"root-proxy-requestheader=root-proxy-requestheader", "root-ca=root-ca", "root-proxy-merged-client-ca=root-proxy-merged-client-ca",
		}, "root-proxy-config"},
		{"alpha-shard-kcp", "shard", "alpha", "CompiledShard", "kcp", "/kcp", []string{
			"kcp-ca=root-ca", "server-ca=root-server-ca", "service-account-ca=root-service-account-ca", "requestheader-client-ca=root-requestheader-client-ca",
			"client-ca=root-client-ca", "server-cert=alpha-server", "service-account-cert=alpha-service-account", "client-cert=alpha-client",
			"client-kubeconfig=alpha-client-kubeconfig", "mounts-proxy-cert=alpha-mounts-proxy",
			"external-logical-cluster-admin-kubeconfig=alpha-external-logical-cluster-admin-kubeconfig",
		}, ""},
		{"front-front-proxy", "front-proxy", "front", "CompiledFrontProxy", "kcp-front-proxy", "/kcp-front-proxy", []string{
			"root-front-dynamic-kubeconfig=root-front-dynamic-kubeconfig", "root-front-kubeconfig=root-front-kubeconfig", "root-front-server=root-front-server",
			"root-front-requestheader=root-front-requestheader", "root-ca=root-ca", "front-merged-client-ca=front-merged-client-ca",
		}, "front-config"},
	}
}

func labels(component, instance string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/managed-by": "kcp-operator", "app.kubernetes.io/name": "kcp", "app.kubernetes.io/instance": instance, "app.kubernetes.io/component": component,
	}
}

// compiledOwner is the owner reference of objects that the second group of kcp-operator's controllers writes.
func compiledOwner(kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "deploy.operator.kcp.io/v1alpha1", Kind: kind, Name: name, UID: "5e5fd3a0-9d0e-4d3f-8a3a-2f7a4a6d0001", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
}

func (s server) objects() []client.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: s.name, Labels: labels(s.component, s.instance), OwnerReferences: compiledOwner(s.owner, s.instance)}
	deploymentMeta := *meta.DeepCopy()
	if s.container == "kcp-front-proxy" {
		deploymentMeta.Labels = nil
	}
	pod := labels(s.component, s.instance)
	pod["operator.kcp.io/secret-0123456789abcdef0123-rev"] = "4711"
	deployment := &appsv1.Deployment{ObjectMeta: deploymentMeta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels(s.component, s.instance)},
		Replicas: ptr.To[int32](3),
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0)),
		}},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: s.container, Image: "ghcr.io/kcp-dev/kcp:v0.32.3", Command: []string{s.command, "start"}, Args: []string{"--service-account-lookup=false"},
			Ports:           []corev1.ContainerPort{{Name: "https", ContainerPort: 6443}},
			SecurityContext: &corev1.SecurityContext{ReadOnlyRootFilesystem: ptr.To(true), AllowPrivilegeEscalation: ptr.To(false)},
		}}}},
	}}
	template := &deployment.Spec.Template.Spec
	add := func(name, path string, source corev1.VolumeSource) {
		template.Volumes = append(template.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		template.Containers[0].VolumeMounts = append(template.Containers[0].VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
	for _, mounted := range s.secrets {
		name, secret := split(mounted)
		add(name, "/former/"+name, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}})
	}
	if s.config != "" {
		add(s.config, "/former/config", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: s.config}}})
	}
	service := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Selector: labels(s.component, s.instance),
		Ports:    []corev1.ServicePort{{Name: "https", Port: 6443, TargetPort: intstr.FromInt32(6443), AppProtocol: ptr.To("https")}},
	}}
	objects := []client.Object{deployment, service}
	if s.config != "" {
		configMeta := *meta.DeepCopy()
		configMeta.Name = s.config
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: configMeta, Data: map[string]string{"path-mapping.yaml": "[]"}})
	}
	return objects
}

// certificate is a Certificate of kcp-operator, with the CA that issues it; a CA has none but the issuer of the user.
type certificate struct {
	name, issuer, commonName, organization string
	usages                                 []certmanagerv1.KeyUsage
	dnsNames                               []string
	owner                                  client.Object
	isCA                                   bool
}

func formerCertificates(root, shard, proxy client.Object) []certificate {
	serving := []certmanagerv1.KeyUsage{certmanagerv1.UsageServerAuth, certmanagerv1.UsageKeyEncipherment, certmanagerv1.UsageDigitalSignature}
	clientAuth := []certmanagerv1.KeyUsage{certmanagerv1.UsageClientAuth}
	signing := []certmanagerv1.KeyUsage{certmanagerv1.UsageKeyEncipherment, certmanagerv1.UsageDigitalSignature}
	const masters = "system:masters"
	all := []certificate{{name: "root-ca", issuer: userIssuer, commonName: "root-ca", owner: root, isCA: true}}
	for _, name := range []string{"root-server-ca", "root-client-ca", "root-requestheader-client-ca", "root-service-account-ca"} {
		all = append(all, certificate{name: name, issuer: "root-ca", commonName: name, owner: root, isCA: true})
	}
	return append(all,
		certificate{name: "root-server", issuer: "root-server-ca", usages: serving, dnsNames: []string{"root-kcp.kcp.svc.cluster.local", "kcp.example.com"}, owner: root},
		certificate{name: "root-service-account", issuer: "root-service-account-ca", commonName: "root-service-account", usages: signing, owner: root},
		certificate{name: "root-logical-cluster-admin", issuer: "root-client-ca", commonName: "logical-cluster-admin", organization: "system:kcp:logical-cluster-admin", usages: clientAuth, owner: root},
		certificate{name: "root-external-logical-cluster-admin", issuer: "root-client-ca", commonName: "external-logical-cluster-admin", organization: "system:kcp:external-logical-cluster-admin", usages: clientAuth, owner: root},
		certificate{name: "root-client", issuer: "root-client-ca", commonName: "root", organization: masters, usages: clientAuth, owner: root},
		certificate{name: "root-kcp-operator", issuer: "root-client-ca", commonName: "system:kcp-operator", organization: "system:kcp:admin", usages: clientAuth, owner: root},
		certificate{name: "root-proxy-server", issuer: "root-server-ca", usages: serving, dnsNames: []string{"root-proxy", "root-proxy.kcp"}, owner: root},
		certificate{name: "root-proxy-kubeconfig", issuer: "root-client-ca", commonName: "kcp-root-shard-proxy", organization: masters, usages: clientAuth, owner: root},
		certificate{name: "root-proxy-requestheader", issuer: "root-requestheader-client-ca", commonName: "kcp-root-shard-proxy", usages: clientAuth, owner: root},
		certificate{name: "alpha-server", issuer: "root-server-ca", usages: serving, dnsNames: []string{"localhost", "alpha-shard-kcp.kcp.svc.cluster.local"}, owner: shard},
		certificate{name: "alpha-service-account", issuer: "root-service-account-ca", commonName: "alpha-service-account", usages: signing, owner: shard},
		certificate{name: "alpha-client", issuer: "root-client-ca", commonName: "shard-alpha", organization: masters, usages: clientAuth, owner: shard},
		certificate{name: "alpha-mounts-proxy", issuer: "root-requestheader-client-ca", commonName: "kcp-mounts-proxy", usages: clientAuth, owner: shard},
		certificate{name: "root-front-server", issuer: "root-server-ca", usages: serving, dnsNames: []string{"front-front-proxy", "kcp.example.com"}, owner: proxy},
		certificate{name: "root-front-kubeconfig", issuer: "root-client-ca", commonName: "kcp-front-proxy", organization: masters, usages: clientAuth, owner: proxy},
		certificate{name: "root-front-requestheader", issuer: "root-requestheader-client-ca", commonName: "kcp-front-proxy", usages: clientAuth, owner: proxy},
	)
}

func (c certificate) object(kind string) *certmanagerv1.Certificate {
	duration, renew := 8760*time.Hour, 168*time.Hour
	if c.isCA {
		duration, renew = 87600*time.Hour, 720*time.Hour
	}
	spec := certmanagerv1.CertificateSpec{
		SecretName: c.name, CommonName: c.commonName, IsCA: c.isCA, Usages: c.usages, DNSNames: c.dnsNames,
		SecretTemplate: &certmanagerv1.CertificateSecretTemplate{Labels: map[string]string{"operator.kcp.io/rootshard": "root"}},
		IssuerRef:      cmmeta.IssuerReference{Name: c.issuer, Kind: certmanagerv1.IssuerKind, Group: "cert-manager.io"},
		Duration:       &metav1.Duration{Duration: duration}, RenewBefore: &metav1.Duration{Duration: renew},
		PrivateKey: &certmanagerv1.CertificatePrivateKey{Algorithm: certmanagerv1.RSAKeyAlgorithm, Size: 4096},
	}
	if c.issuer == userIssuer {
		spec.IssuerRef = cmmeta.IssuerReference{Name: c.issuer} // as in the RootShard
	}
	if c.organization != "" {
		spec.Subject = &certmanagerv1.X509Subject{Organizations: []string{c.organization}}
	}
	return &certmanagerv1.Certificate{Spec: spec, ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: c.name, Labels: labels("rootshard", "root"), OwnerReferences: sourceOwner(c.owner, kind),
	}}
}

func sourceOwner(owner client.Object, kind string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: "operator.kcp.io/v1alpha1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}}
}

// issue returns the Secret that cert-manager writes for a Certificate.
func issue(t *testing.T, ca *shardtesting.CA, name string) *corev1.Secret {
	t.Helper()
	certFile, keyFile := ca.Issue(t, name)
	data := map[string][]byte{}
	for key, file := range map[string]string{corev1.TLSCertKey: certFile, corev1.TLSPrivateKeyKey: keyFile, "ca.crt": ca.CertFile} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data[key] = content
	}
	return &corev1.Secret{Type: corev1.SecretTypeTLS, Data: data, ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{"operator.kcp.io/rootshard": "root"},
		Annotations: map[string]string{"cert-manager.io/certificate-name": name},
	}}
}
