package main

import (
	"flag"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		env  string
		args []string
		want string // image, or the error's text
		ok   bool
	}{
		"no image at all is an error":                   {"", nil, "--default-image is required", false},
		"the environment names the image":               {"example.com/atoll:v1", nil, "example.com/atoll:v1", true},
		"the flag wins":                                 {"example.com/atoll:v1", []string{"--default-image=example.com/atoll:v2"}, "example.com/atoll:v2", true},
		"an image without tag is an error":              {"", []string{"--default-image=example.com/atoll"}, "want repository:tag", false},
		"an unknown flag is an error":                   {"a:b", []string{"--sync-period=1h"}, "flag provided but not defined", false},
		"an unknown feature cannot be enabled":          {"a:b", []string{"--feature-gates=ConfigurationBundle=true"}, `there is no feature "ConfigurationBundle"`, false},
		"a gate has a value":                            {"a:b", []string{"--feature-gates=ConfigurationBundle"}, "want name=false", false},
		"a certificate that does not exist is an error": {"a:b", []string{"--metrics-cert-path=/nowhere"}, "--metrics-cert-path: open /nowhere/tls.crt", false},
		"a single controller group is rejected":         {"a:b", []string{"--enabled-controller-groups=config"}, "want config,workload", false},
		"the version needs no image":                    {"", []string{"--version"}, flag.ErrHelp.Error(), false},
		"an argument is an error":                       {"a:b", []string{"run"}, "unexpected argument", false},
		"the flags of existing deployments":             {"a:b", []string{"--leader-elect", "--metrics-bind-address=:8443", "--metrics-secure=false", "--enable-http2", "--enabled-controller-groups=workload,config", "--feature-gates=ConfigurationBundle=false", "--health-probe-bind-address=:8081", "--zap-log-level=debug"}, "a:b", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("ATOLL_DEFAULT_IMAGE", tc.env)
			_, image, err := parseFlags(tc.args)
			got := image.String()
			if err != nil {
				got = err.Error()
			}
			if (err == nil) != tc.ok || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
