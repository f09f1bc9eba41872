package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Options configure a run. All fields are required.
type Options struct {
	Operation Operation
	// Config is the client configuration of the runtime cluster.
	Config *rest.Config
	// Namespace contains the Secrets of the state and of the result, and the lease, which one run at a time holds.
	Namespace, State, Result, Lease string
	// LeaseDuration is the time after which another run can take the lease of a killed run.
	LeaseDuration time.Duration
	// Identity is the identity of the run in the lease.
	Identity string
	// Inputs is the directory of the inputs. Work is an empty directory that can be written to.
	Inputs, Work string
	// Tofu is the path of the program.
	Tofu string
}

// Run performs one run while it holds the lease. When the context ends, or the run loses the lease, it interrupts tofu.
func Run(ctx context.Context, o Options) error {
	clientset, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return err
	}
	// Hold the lease until tofu has ended and its state is saved, which is after the end of ctx.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var started atomic.Bool
	defer context.AfterFunc(ctx, func() {
		if !started.Load() {
			release()
		}
	})()
	finished := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Lease}, Client: clientset.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
		},
		LeaseDuration: o.LeaseDuration, RenewDeadline: o.LeaseDuration * 2 / 3, RetryPeriod: o.LeaseDuration / 12, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				started.Store(true)
				leading, cancel := context.WithCancel(leading)
				defer cancel()
				defer context.AfterFunc(ctx, cancel)()
				finished <- (&run{Options: o, clientset: clientset}).run(leading)
				release()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("building the lock: %w", err)
	}
	elector.Run(holding)
	if !started.Load() {
		return fmt.Errorf("waiting for the lock: %w", ctx.Err())
	}
	return <-finished
}

// run is a run that holds the lease.
type run struct {
	Options
	clientset kubernetes.Interface
	settings  Settings
	// environment is added to the environment of tofu.
	environment []string
}

func (r *run) run(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := r.prepare(); err != nil {
		return fmt.Errorf("preparing the module: %w", err)
	}
	state, err := newStateServer(ctx, r.clientset.CoreV1().Secrets(r.Namespace), r.State)
	if err != nil {
		return err
	}
	environment, stop, err := state.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	r.environment = environment
	if _, err := r.tofu(ctx, "init", "-input=false", "-no-color"); err != nil {
		return err
	}
	switch r.Operation {
	case Apply:
		return r.apply(ctx)
	case Check, Repair:
		return r.check(ctx)
	case Destroy:
		return r.destroy(ctx)
	}
	return fmt.Errorf("unknown operation %q", r.Operation)
}

// backendFile configures tofu to store its state at the address in the environment.
const backendFile = "atoll_backend.tf.json"

func (r *run) module() string { return filepath.Join(r.Work, "module") }

// prepare copies the module to a directory that tofu can write to.
func (r *run) prepare() error {
	text, err := os.ReadFile(filepath.Join(r.Inputs, SettingsKey))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &r.settings); err != nil {
		return fmt.Errorf("%s: %w", SettingsKey, err)
	}
	if err := os.MkdirAll(r.module(), 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(r.Inputs)
	if err != nil {
		return err
	}
	for _, file := range files {
		path := filepath.Join(r.Inputs, file.Name())
		info, err := os.Stat(path) // files of volumes are links
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || file.Name() == SettingsKey || file.Name() == VariablesKey {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(r.module(), file.Name()), content, 0o600); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.module(), backendFile), []byte(`{"terraform":{"backend":{"http":{}}}}`), 0o600)
}

func (r *run) variables() string { return "-var-file=" + filepath.Join(r.Inputs, VariablesKey) }

func (r *run) apply(ctx context.Context) error {
	// Until tofu has succeeded, the inputs of the infrastructure are unknown.
	err := r.updateResult(ctx, func(result *Result) { result.Revision, result.Destroyed = "", false })
	if err != nil {
		return err
	}
	if _, err := r.tofu(ctx, "plan", "-input=false", "-no-color", r.variables(), "-out=plan"); err != nil {
		return err
	}
	return r.applyPlan(ctx)
}

func (r *run) applyPlan(ctx context.Context) error {
	if _, err := r.tofu(ctx, "apply", "-input=false", "-no-color", "plan"); err != nil {
		return err
	}
	outputs, connection, err := r.outputs(ctx)
	if err != nil {
		return err
	}
	return r.updateResult(ctx, func(result *Result) {
		*result = Result{Revision: r.settings.Revision, Time: time.Now(), Outputs: outputs, Connection: connection}
	})
}

func (r *run) check(ctx context.Context) error {
	code, err := r.tofu(ctx, "plan", "-detailed-exitcode", "-input=false", "-no-color", r.variables(), "-out=plan")
	const differs = 2
	if err != nil && code != differs {
		return err
	}
	if code == differs && r.Operation == Repair {
		return r.applyPlan(ctx)
	}
	return r.updateResult(ctx, func(result *Result) { result.Time, result.Drifted = time.Now(), code == differs })
}

func (r *run) destroy(ctx context.Context) error {
	if _, err := r.tofu(ctx, "destroy", "-auto-approve", "-input=false", "-no-color", r.variables()); err != nil {
		return err
	}
	return r.updateResult(ctx, func(result *Result) { *result = Result{Time: time.Now(), Destroyed: true} })
}

// updateResult changes the result. Only the run that holds the lease writes it.
func (r *run) updateResult(ctx context.Context, change func(*Result)) error {
	secrets := r.clientset.CoreV1().Secrets(r.Namespace)
	err := persistently(ctx, func(ctx context.Context) error {
		secret, err := secrets.Get(ctx, r.Result, metav1.GetOptions{})
		if err != nil {
			return err
		}
		result := &Result{}
		if text := secret.Data[ResultKey]; len(text) > 0 {
			if err := utiljson.Unmarshal(text, result); err != nil {
				return err
			}
		}
		change(result)
		text, err := json.Marshal(result)
		if err != nil {
			return err
		}
		secret.Data = map[string][]byte{ResultKey: text}
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// errInterrupted is joined to errors of tofu after an interrupt.
var errInterrupted = errors.New("interrupted")
