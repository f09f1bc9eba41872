package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/atoll-dev/atoll/plugin/doctor"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
	"github.com/atoll-dev/atoll/test/installation"
)

// examination is what "kubectl kcp doctor -o json" has told.
type examination struct {
	doctor.Report
	commandOutput
	code int
}

// doctor runs "kubectl kcp doctor -o json" with more flags.
func (u *user) doctor(line string) examination {
	u.Helper()
	got := examination{commandOutput: u.kcp("doctor -o json " + line)}
	var withCode interface{ ExitCode() int }
	if errors.As(u.lastError, &withCode) {
		got.code = withCode.ExitCode()
	}
	if got.out != "" {
		if err := json.Unmarshal([]byte(got.out), &got.Report); err != nil {
			u.Fatalf("%v in %s", err, got.out)
		}
	}
	return got
}

// hasEnded returns an error unless the command has ended with an exit code.
func (e examination) hasEnded(code int) error {
	if e.code != code {
		return fmt.Errorf("the exit code is %d, expected %d: %s", e.code, code, e.err)
	}
	return nil
}

// of returns the findings of a check about objects with a text in their name.
func (e examination) of(check, object string) []doctor.Finding {
	var found []doctor.Finding
	for _, finding := range e.Findings {
		if finding.Check == check && strings.Contains(finding.Object, object) {
			found = append(found, finding)
		}
	}
	return found
}

// result returns the status and the reasons of a check.
func (e examination) result(id string) doctor.CheckResult {
	for _, check := range e.Checks {
		if check.ID == id {
			return check
		}
	}
	return doctor.CheckResult{}
}

// shardsKubeconfig writes the kubeconfig of a member of system:masters.
func shardsKubeconfig(t *testing.T, i *installation.Installation) string {
	file := filepath.Join(t.TempDir(), "shards.kubeconfig")
	installation.WriteKubeconfig(t, i.Masters(t, installation.Root), file)
	return file
}

// testHealthy runs before all other tests: nothing is wrong yet.
func testHealthy(t *testing.T, i *installation.Installation) {
	u := newUser(t, i, i.Admin(t, "root"))
	shards := shardsKubeconfig(t, i)
	for name, flags := range map[string]string{"through the front proxy": "", "at the shards": "--deep --shards-kubeconfig " + shards} {
		t.Run(name, func(t *testing.T) {
			shardtesting.Eventually(t, "nothing is wrong", func(context.Context) error {
				got := u.doctor("--grace 0s " + flags)
				if len(got.Findings) > 0 || got.err != "" || got.code != 0 {
					return fmt.Errorf("%d, %+v, %s", got.code, got.Findings, got.err)
				}
				for _, check := range got.Checks {
					expected := doctor.StatusComplete
					if ofHost := []string{"operator", "host-certificates", "backups"}; slices.Contains(ofHost, check.ID) {
						expected = doctor.StatusSkipped
					}
					if flags != "" && check.Status != expected {
						return fmt.Errorf("%+v is not %s", check, expected)
					}
					if check.Status != doctor.StatusComplete && len(check.Reasons) == 0 {
						return fmt.Errorf("%+v has no reason", check)
					}
				}
				return nil
			})
		})
	}
}
