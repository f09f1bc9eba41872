package registry

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

func TestIsLoopbackRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		user user.Info
		want bool
	}{
		"the shard":                      {&user.DefaultInfo{Name: "system:apiserver", Groups: []string{"system:authenticated", "system:masters"}}, true},
		"another user of the same name":  {&user.DefaultInfo{Name: "system:apiserver", Groups: []string{"system:authenticated"}}, false},
		"another user in system:masters": {&user.DefaultInfo{Name: "shard-admin", Groups: []string{"system:masters"}}, false},
		"no user":                        {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if tc.user != nil {
				ctx = request.WithUser(ctx, tc.user)
			}
			if got := IsLoopbackRequest(ctx); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
