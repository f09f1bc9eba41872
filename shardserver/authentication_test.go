package shardserver_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tenancyv1alpha1 "github.com/atoll-dev/atoll/api/tenancy/v1alpha1"
	"github.com/atoll-dev/atoll/internal/issuers/issuertest"
	"github.com/atoll-dev/atoll/shardserver/options"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// TestWorkspaceIssuers covers the lifecycle of a configuration, through the API of a shard.
func TestWorkspaceIssuers(t *testing.T) {
	s := shardtesting.Start(t, func(o *options.Options) { o.FeatureGates = []string{"WorkspaceAuthentication=true"} })
	issuer := issuertest.Start(t)
	admin := s.Client(t, s.Admin(t))
	root := shardtesting.In(t.Context(), "root")
	workspaceType := &tenancyv1alpha1.WorkspaceType{ObjectMeta: metav1.ObjectMeta{Name: "sso"}, Spec: tenancyv1alpha1.WorkspaceTypeSpec{
		Extend: tenancyv1alpha1.WorkspaceTypeExtension{With: []tenancyv1alpha1.WorkspaceTypeReference{{Name: "universal", Path: "root"}}},
	}}
	if err := admin.Create(root, workspaceType); err != nil {
		t.Fatal(err)
	}
	create := func(name string, workspaceType tenancyv1alpha1.WorkspaceTypeName) string {
		workspace := &tenancyv1alpha1.Workspace{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: tenancyv1alpha1.WorkspaceSpec{Type: &tenancyv1alpha1.WorkspaceTypeReference{Name: workspaceType, Path: "root"}}}
		if err := admin.Create(root, workspace); err != nil {
			t.Fatal(err)
		}
		return s.WaitReady(t, "root", name).Spec.Cluster
	}
	// The workspaces are created before their issuers are configured.
	own, foreign := create("own", "sso"), create("foreign", "universal")
	for _, cluster := range []string{own, foreign} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "all-users"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "oidc:ada"}},
		}
		if err := admin.Create(shardtesting.In(t.Context(), cluster), binding); err != nil {
			t.Fatal(err)
		}
	}
	as := func(token, cluster string) *rest.Config {
		config := rest.AnonymousClientConfig(shardtesting.At(s.Masters(t), cluster))
		config.BearerToken = token
		return config
	}
	ada := issuer.Token(t, map[string]any{"sub": "ada", "groups": []string{"dev", "system:masters"}})
	reviewSelf := func(ctx context.Context, token, cluster string) (authenticationv1.UserInfo, error) {
		answer, err := s.Kubernetes(t, as(token, cluster)).AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return authenticationv1.UserInfo{}, err
		}
		return answer.Status.UserInfo, nil
	}
	if _, err := reviewSelf(t.Context(), ada, own); !apierrors.IsUnauthorized(err) {
		t.Fatalf("before there is a configuration: %v", err)
	}

	configuration := &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "corp"},
		Spec: tenancyv1alpha1.WorkspaceAuthenticationConfigurationSpec{JWT: []tenancyv1alpha1.JWTAuthenticator{issuer.Authenticator()}}}
	if err := admin.Create(root, configuration); err != nil {
		t.Fatal(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"authenticationConfigurations":[{"name":"missing"},{"name":"corp"}]}}`))
	if err := admin.Patch(root, workspaceType, patch); err != nil {
		t.Fatal(err)
	}

	shardtesting.Eventually(t, "the token to be accepted in an existing workspace", func(ctx context.Context) error {
		got, err := reviewSelf(ctx, ada, own)
		if err != nil {
			return err
		}
		slices.Sort(got.Groups)
		if got.Username != "oidc:ada" || !slices.Equal(got.Groups, []string{"dev", "system:authenticated"}) ||
			!slices.Equal(got.Extra["authentication.kcp.io/scopes"], []string{"cluster:" + own}) || !slices.Equal(got.Extra["authentication.kcp.io/cluster-name"], []string{own}) {
			return fmt.Errorf("got %+v", got)
		}
		return nil
	})
	for cluster, want := range map[string]bool{own: true, foreign: false, "root": false} {
		review, err := s.Kubernetes(t, shardtesting.At(s.Admin(t), cluster)).AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: ada}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := review.Status
		if got.Authenticated != want || want && (got.User.Username != "oidc:ada" || !slices.Equal(got.User.Extra["authentication.kcp.io/scopes"], []string{"cluster:" + own})) {
			t.Errorf("the review in %q is %+v", cluster, got)
		}
	}
	if _, err := s.Kubernetes(t, as(ada, own)).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("request denied by RBAC of the workspace: %v", err)
	}
	for _, otherCluster := range []string{foreign, "root", "system:admin", "*"} {
		if _, err := s.Kubernetes(t, as(ada, otherCluster)).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("in %q: %v", otherCluster, err)
		}
	}
	if _, err := reviewSelf(t.Context(), issuer.Token(t, map[string]any{"sub": "ada", "aud": "other"}), own); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token of another audience: %v", err)
	}
	if err := admin.Get(shardtesting.In(t.Context(), own), client.ObjectKey{Name: "corp"}, configuration); !apierrors.IsNotFound(err) {
		t.Errorf("the configuration in another workspace: %v", err)
	}

	if err := admin.Delete(root, configuration); err != nil {
		t.Fatal(err)
	}
	shardtesting.Eventually(t, "the token to be rejected after the deletion of the configuration", func(ctx context.Context) error {
		if _, err := reviewSelf(ctx, ada, own); !apierrors.IsUnauthorized(err) {
			return errors.Join(errors.New("the token was accepted"), err)
		}
		return nil
	})
}

// TestUnusableIssuers: what the schema accepts is stored, and an event tells why it authenticates no token.
func TestUnusableIssuers(t *testing.T) {
	s := shardtesting.Start(t)
	admin := s.Client(t, s.Admin(t))
	cluster := s.NewWorkspace(t, "root", "issuers").Spec.Cluster
	ctx := shardtesting.In(t.Context(), cluster)
	create := func(name string, change func(*tenancyv1alpha1.JWTAuthenticator)) error {
		prefix := ""
		jwt := tenancyv1alpha1.JWTAuthenticator{
			Issuer:        tenancyv1alpha1.Issuer{URL: "https://issuer.example.com", Audiences: []string{"a"}},
			ClaimMappings: tenancyv1alpha1.ClaimMappings{Username: tenancyv1alpha1.PrefixedClaimOrExpression{Claim: "sub", Prefix: &prefix}},
		}
		change(&jwt)
		return admin.Create(ctx, &tenancyv1alpha1.WorkspaceAuthenticationConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: tenancyv1alpha1.WorkspaceAuthenticationConfigurationSpec{JWT: []tenancyv1alpha1.JWTAuthenticator{jwt}}})
	}
	for message, change := range map[string]func(*tenancyv1alpha1.JWTAuthenticator){
		"spec.jwt[0].claimMappings.username: Invalid value: \"object\": claim and expression cannot both be specified": func(jwt *tenancyv1alpha1.JWTAuthenticator) {
			jwt.ClaimMappings.Username.Expression = "claims.sub"
		},
		"spec.jwt[0].claimMappings.groups: Invalid value: \"object\": prefix can only be specified when claim is specified": func(jwt *tenancyv1alpha1.JWTAuthenticator) {
			prefix := ""
			jwt.ClaimMappings.Groups = tenancyv1alpha1.PrefixedClaimOrExpression{Expression: "claims.groups", Prefix: &prefix}
		},
		"spec.jwt[0].claimMappings.groups: Invalid value: \"object\": claim or expression must be specified": func(jwt *tenancyv1alpha1.JWTAuthenticator) {
			prefix := ""
			jwt.ClaimMappings.Groups = tenancyv1alpha1.PrefixedClaimOrExpression{Prefix: &prefix}
		},
		"spec.jwt[0].claimMappings.uid: Invalid value: \"object\": claim and expression cannot both be specified": func(jwt *tenancyv1alpha1.JWTAuthenticator) {
			jwt.ClaimMappings.UID = tenancyv1alpha1.ClaimOrExpression{Claim: "sub", Expression: "claims.sub"}
		},
		"spec.jwt[0].claimValidationRules[0]: Invalid value: \"object\": requiredValue must be specified when claim is specified": func(jwt *tenancyv1alpha1.JWTAuthenticator) {
			jwt.ClaimValidationRules = []tenancyv1alpha1.ClaimValidationRule{{Claim: "hd"}}
		},
		"spec.jwt[0].claimValidationRules[0]: Invalid value: \"object\": message must be specified when expression is specified": func(jwt *tenancyv1alpha1.JWTAuthenticator) {
			jwt.ClaimValidationRules = []tenancyv1alpha1.ClaimValidationRule{{Expression: "true"}}
		},
		"spec.jwt[0].issuer.url: Required value": func(jwt *tenancyv1alpha1.JWTAuthenticator) { jwt.Issuer.URL = "" },
	} {
		if err := create("refused", change); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), message) {
			t.Errorf("got %v, want %s", err, message)
		}
	}
	for name, change := range map[string]func(*tenancyv1alpha1.JWTAuthenticator){
		"usable":       func(*tenancyv1alpha1.JWTAuthenticator) {},
		"plain-http":   func(jwt *tenancyv1alpha1.JWTAuthenticator) { jwt.Issuer.URL = "http://issuer.example.com" },
		"no-audiences": func(jwt *tenancyv1alpha1.JWTAuthenticator) { jwt.Issuer.Audiences = nil },
		"no-username": func(jwt *tenancyv1alpha1.JWTAuthenticator) {
			jwt.ClaimMappings.Username = tenancyv1alpha1.PrefixedClaimOrExpression{}
		},
		"no-prefix": func(jwt *tenancyv1alpha1.JWTAuthenticator) { jwt.ClaimMappings.Username.Prefix = nil },
		"no-expression": func(jwt *tenancyv1alpha1.JWTAuthenticator) {
			jwt.UserValidationRules = []tenancyv1alpha1.UserValidationRule{{Expression: "user.", Message: ""}}
		},
	} {
		if err := create(name, change); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	want := []string{"no-audiences", "no-expression", "no-prefix", "no-username", "plain-http"}
	shardtesting.Eventually(t, "the events", func(ctx context.Context) error {
		events := &corev1.EventList{}
		if err := admin.List(shardtesting.In(ctx, cluster), events, client.InNamespace("default")); err != nil {
			return err
		}
		var got []string
		for _, event := range events.Items {
			if event.Reason == "InvalidConfiguration" && strings.Contains(event.Message, "spec.jwt[0]") {
				got = append(got, event.InvolvedObject.Name)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("events of %q, want of %q", got, want)
		}
		return nil
	})
}
