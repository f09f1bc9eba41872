package runtimecluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defaultsName is the name of the objects that implement Defaults.
const defaultsName = "infrastructure-defaults"

// annotationDefaults is the annotation of a namespace with the hash of its applied Defaults.
const annotationDefaults = "defaults"

// podSecurityLabel is the label of the level that pods of a namespace must fulfil.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// Defaults configure the namespace of each tenant, besides the objects of instances. The zero value configures nothing.
type Defaults struct {
	// PodSecurity is the enforced level of pod security: privileged, baseline or restricted; empty means that of the cluster.
	PodSecurity string
	// Requests and Limits are the defaults for containers that have none.
	Requests, Limits corev1.ResourceList
	// Quota limits each namespace.
	Quota corev1.ResourceList
	// Isolated blocks ingress from pods of other namespaces, except those in AllowedFrom.
	Isolated    bool
	AllowedFrom []string
	// RestrictEgress restricts egress of pods to pods of their namespace and to DNS.
	RestrictEgress bool
}

// hash returns a hash of the content, or an empty string for the zero value.
func (d *Defaults) hash() (string, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return "", err
	}
	if nothing, err := json.Marshal(&Defaults{}); err != nil || string(text) == string(nothing) {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// objects returns the objects that a namespace should have, and those that it should not have.
func (d *Defaults) objects(namespace string, labels map[string]string) (wanted, unwanted []client.Object) {
	named := metav1.ObjectMeta{Namespace: namespace, Name: defaultsName, Labels: labels}
	add := func(isWanted bool, object client.Object) {
		if isWanted {
			wanted = append(wanted, object)
		} else {
			unwanted = append(unwanted, object)
		}
	}
	add(len(d.Requests)+len(d.Limits) > 0, &corev1.LimitRange{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "LimitRange"}, ObjectMeta: named,
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, DefaultRequest: d.Requests, Default: d.Limits}}},
	})
	add(len(d.Quota) > 0, &corev1.ResourceQuota{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"}, ObjectMeta: named, Spec: corev1.ResourceQuotaSpec{Hard: d.Quota},
	})
	add(d.Isolated || d.RestrictEgress, &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "NetworkPolicy"}, ObjectMeta: named, Spec: d.networkPolicy(),
	})
	return wanted, unwanted
}

func (d *Defaults) networkPolicy() networkingv1.NetworkPolicySpec {
	ownPods := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
	spec := networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{}}
	if d.Isolated {
		from := []networkingv1.NetworkPolicyPeer{ownPods}
		if len(d.AllowedFrom) > 0 {
			from = append(from, networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: d.AllowedFrom}},
			}})
		}
		spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeIngress)
		spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: from}}
	}
	if d.RestrictEgress {
		dns := func(protocol corev1.Protocol) networkingv1.NetworkPolicyPort {
			return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: ptr.To(intstr.FromInt32(53))}
		}
		spec.PolicyTypes = append(spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		spec.Egress = []networkingv1.NetworkPolicyEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{ownPods}},
			{Ports: []networkingv1.NetworkPolicyPort{dns(corev1.ProtocolUDP), dns(corev1.ProtocolTCP)}},
		}
	}
	return spec
}

// ensureDefaults applies the defaults to a namespace, unless its annotation has the current hash.
func (c *Cluster) ensureDefaults(ctx context.Context, namespace *corev1.Namespace) error {
	hash, err := c.Defaults.hash()
	if err != nil || namespace.Annotations[c.label(annotationDefaults)] == hash {
		return err
	}
	wanted, unwanted := c.Defaults.objects(namespace.Name, map[string]string{managedBy: Owner})
	for _, object := range wanted {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		delete(content, "status")
		applied := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
		err = c.Client.Apply(ctx, applied, client.FieldOwner(Owner), client.ForceOwnership)
		if meta.IsNoMatchError(err) {
			return fmt.Errorf("applying the defaults of a namespace: the runtime cluster needs this kind, unless flags (--tenant-...) switch it off: %w", err)
		}
		if err != nil {
			return fmt.Errorf("applying the defaults of a namespace: %w", err)
		}
	}
	for _, object := range unwanted {
		if err := c.Client.Delete(ctx, object); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("deleting previous defaults of a namespace: %w", err)
		}
	}
	value := func(text string) any {
		if text == "" {
			return nil
		}
		return text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{podSecurityLabel: value(c.Defaults.PodSecurity)},
		"annotations": map[string]any{c.label(annotationDefaults): value(hash)},
	}})
	if err != nil {
		return err
	}
	if err := c.Client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("writing that a namespace has its defaults: %w", err)
	}
	return nil
}
