package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// GracePeriod is how long tofu may take to end after an interrupt: it finishes its current step and saves its state.
const GracePeriod = 90 * time.Second

// tofu runs tofu in the directory of the module, and returns its exit code. It forwards the output to that of this process.
func (r *run) tofu(ctx context.Context, args ...string) (code int, err error) {
	return r.tofuTo(ctx, os.Stdout, args...)
}

func (r *run) tofuTo(ctx context.Context, stdout io.Writer, args ...string) (code int, err error) {
	cmd := exec.CommandContext(ctx, r.Tofu, args...)
	cmd.Dir = r.module()
	cmd.Env = append(os.Environ(), r.environment...)
	cmd.Env = append(cmd.Env, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1", "HOME="+r.Work)
	cmd.Stdout, cmd.Stderr = stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = GracePeriod
	err = cmd.Run()
	if ctx.Err() != nil {
		err = errors.Join(errInterrupted, err)
	}
	if err != nil {
		return cmd.ProcessState.ExitCode(), fmt.Errorf("tofu %s: %w", args[0], err)
	}
	return 0, nil
}

// output is an output in the JSON format of tofu.
type output struct {
	Sensitive bool            `json:"sensitive"`
	Value     json.RawMessage `json:"value"`
}

// outputs returns the outputs to write to the result.
func (r *run) outputs(ctx context.Context) (outputs map[string]any, connection map[string]string, err error) {
	var text bytes.Buffer
	if _, err := r.tofuTo(ctx, &text, "output", "-json", "-no-color"); err != nil {
		return nil, nil, err
	}
	all := map[string]output{}
	if err := json.Unmarshal(text.Bytes(), &all); err != nil {
		return nil, nil, fmt.Errorf("reading the outputs: %w", err)
	}
	return selectOutputs(r.settings, all)
}

// selectOutputs omits sensitive values from outputs, because the status shows them to tenants. It omits outputs that are null.
func selectOutputs(settings Settings, all map[string]output) (outputs map[string]any, connection map[string]string, err error) {
	outputs, connection = map[string]any{}, map[string]string{}
	for _, name := range slices.Concat(settings.Outputs, settings.Connection) {
		found, ok := all[name]
		if !ok {
			continue
		}
		var value any
		if err := utiljson.Unmarshal(found.Value, &value); err != nil {
			return nil, nil, fmt.Errorf("reading output %q: %w", name, err)
		}
		if value == nil {
			continue
		}
		if slices.Contains(settings.Outputs, name) && !found.Sensitive {
			outputs[name] = value
		}
		if slices.Contains(settings.Connection, name) {
			connection[name] = asText(value, found.Value)
		}
	}
	return outputs, connection, nil
}

func asText(value any, encoded json.RawMessage) string {
	if text, ok := value.(string); ok {
		return text
	}
	return string(encoded)
}
