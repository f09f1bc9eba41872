package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestHelpHasExamplesAndFlags(t *testing.T) {
	for args, want := range map[string][]string{
		"--help": {
			"sync-agent --kcp-kubeconfig=", "--apiexportendpointslice-ref", "--namespace", "--kubeconfig", "--agent-name", "--published-resource-selector",
			"--enable-leader-election", "--kubeconfig-host-override", "--kubeconfig-ca-file-override", "--metrics-address", "--health-address",
			"--disabled-controllers", "--log-debug", "--log-format", "--orphan-policy", "cleanup",
		},
		"cleanup --help": {"--delete", "--kcp-kubeconfig", "--published-resource-selector"},
	} {
		var out bytes.Buffer
		cmd := newCommand()
		cmd.SetOut(&out)
		cmd.SetArgs(strings.Fields(args))
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("the help of %q does not mention %s", args, text)
			}
		}
	}
}

func TestMissingFlagsAreErrors(t *testing.T) {
	for _, args := range [][]string{{}, {"cleanup"}} {
		cmd := newCommand()
		cmd.SetArgs(args)
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "--kcp-kubeconfig is required") {
			t.Errorf("%v: got %v", args, err)
		}
	}
}
