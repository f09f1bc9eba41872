package frontproxy

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/atoll-dev/atoll/api/operator/v1alpha1"
	"github.com/atoll-dev/atoll/controllers/status"
)

func TestValidateNames(t *testing.T) {
	for name, tc := range map[string]struct {
		front, root string
		text        string // "" if there is no result
	}{
		"ordinary names":                   {"main", "root", ""},
		"the internal proxy's name":        {"proxy", "root", "recreate it under another name"},
		"the longest names":                {strings.Repeat("f", 20), strings.Repeat("r", 23), ""},
		"the name of the etcd that is run": {"etcd", "root", "recreate it under another name"},
		"a dot in the name":                {"a.b", "root", "contains a dot"},
		"one character too many":           {strings.Repeat("f", 21), strings.Repeat("r", 23), "have 44 characters together and may have 43"},
	} {
		t.Run(name, func(t *testing.T) {
			result := validateSpec(
				&operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: tc.front}},
				&operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: tc.root}})
			if (result.State == status.Satisfied) != (tc.text == "") || !strings.Contains(result.Message, tc.text) {
				t.Errorf("got %+v", result)
			}
		})
	}
}

func TestIgnoredFields(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*operatorv1alpha1.FrontProxySpec)
		kind   status.State
		text   string
	}{
		"nothing is set": {func(*operatorv1alpha1.FrontProxySpec) {}, status.Satisfied, ""},
		"a port out of range is refused": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.External = &operatorv1alpha1.ExternalConfig{Hostname: "a"}
		}, status.Stalled, "external.port is 0: set a port from 1 to 65535"},
		"an empty address is that of the RootShard": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.External = &operatorv1alpha1.ExternalConfig{}
		}, status.Satisfied, ""},
		"a port out of range in the deprecated name is refused": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.ExternalHostname = "a:70000"
		}, status.Stalled, `externalHostname is "a:70000", and its port must be from 1 to 65535`},
		"a deprecated name without a number as its port is refused": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.ExternalHostname = "a:https"
		}, status.Stalled, `externalHostname is "a:https"`},
		"a deprecated name with a port is honored": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.ExternalHostname = "[2001:db8::1]:443"
		}, status.Satisfied, ""},
		"a deprecated name without a port is honored": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.ExternalHostname = "2001:db8::1"
		}, status.Satisfied, ""},
		"a private address is the RootShard's": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.External = &operatorv1alpha1.ExternalConfig{Hostname: "a", Port: 1, PrivateHostname: "b"}
		}, status.Warning, "spec.external.privateHostname"},
		"an empty dropGroups does not pass system:masters": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.Auth = &operatorv1alpha1.AuthSpec{DropGroups: []string{""}}
		}, status.Warning, "spec.auth.dropGroups without system:masters"},
		"dropping them by a pattern is honored": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.Auth = &operatorv1alpha1.AuthSpec{DropGroups: []string{"system:*"}}
		}, status.Satisfied, ""},
		"passing them on is not honored": {func(s *operatorv1alpha1.FrontProxySpec) {
			s.Auth = &operatorv1alpha1.AuthSpec{PassOnGroups: []string{"a", "system:masters"}}
		}, status.Warning, "spec.auth.passOnGroups with system:masters"},
	} {
		t.Run(name, func(t *testing.T) {
			front := &operatorv1alpha1.FrontProxy{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
			tc.change(&front.Spec)
			result := validateSpec(front, &operatorv1alpha1.RootShard{ObjectMeta: metav1.ObjectMeta{Name: "root"}})
			if result.State != tc.kind || !strings.Contains(result.Message, tc.text) {
				t.Errorf("got %+v", result)
			}
		})
	}
}
