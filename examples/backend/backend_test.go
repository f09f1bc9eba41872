package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/infrastructure/backend"
	"github.com/atoll-dev/atoll/infrastructure/backendtest"
	"github.com/atoll-dev/atoll/logicalcluster"
	environment "github.com/atoll-dev/atoll/test/infrastructure"
)

func TestConformance(t *testing.T) {
	directory := made(t.TempDir())
	backendtest.Run(t, backendtest.Suite{
		Environment: environment.StartShard(t),
		New: func(_ testing.TB, cfg backendtest.Config) backend.Backend {
			return newBackend(config{
				group: cfg.Group, export: cfg.Export, directory: string(directory), recheck: 200 * time.Millisecond, sweep: cfg.SweepInterval, log: cfg.Log,
			})
		},
		BackendConfig: `{"domain":"example.org","outputs":["size"],"comment":"` + backendtest.Confidential + `"}`,
		InvalidConfig: `{"domian":"example.org"}`,
		Made:          directory,
		// The last one is the name of the test's program: a module may be called as its backend.
		Words: []string{".json", "directory", "backend.test"},
	})
}

// made looks at the files.
type made string

func (m made) List(_ context.Context, tenant logicalcluster.Name) ([]string, error) {
	return filepath.Glob(filepath.Join(string(m), tenant.String(), "*", "*"))
}

func (m made) Size(_ context.Context, tenant logicalcluster.Name, instance string) (string, error) {
	found, err := m.read(tenant, instance)
	size, _ := found.Spec["size"].(string)
	return size, ignoreNotExist(err)
}

func (m made) Damage(_ context.Context, tenant logicalcluster.Name, instance string) error {
	found, err := m.read(tenant, instance)
	if err != nil {
		return err
	}
	found.Spec["size"] = "damaged"
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	return os.WriteFile(m.file(tenant, instance), text, 0o600)
}

func (m made) file(tenant logicalcluster.Name, instance string) string {
	return filepath.Join(string(m), tenant.String(), "sample", instance+extension)
}

func (m made) read(tenant logicalcluster.Name, instance string) (found content, err error) {
	text, err := os.ReadFile(m.file(tenant, instance))
	if err != nil {
		return found, err
	}
	return found, json.Unmarshal(text, &found)
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
