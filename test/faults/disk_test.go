package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	conditionsv1alpha1 "github.com/atoll-dev/atoll/api/conditions/v1alpha1"
	corev1alpha1 "github.com/atoll-dev/atoll/api/core/v1alpha1"
	shardtesting "github.com/atoll-dev/atoll/shardserver/testing"
)

// disk is a file system in memory that is small enough to be filled.
type disk struct {
	directory string
	// notMounted says why it is a directory of the test instead.
	notMounted error
}

// diskBytes suffice for what the tests write, and for the segments that etcd allocates in advance.
const diskBytes = 512 << 20

// newDisk mounts a file system until the test ends.
func newDisk(t *testing.T) *disk {
	t.Helper()
	d := &disk{directory: t.TempDir()}
	if d.notMounted = run("mount", "-t", "tmpfs", "-o", fmt.Sprint("size=", diskBytes), "tmpfs", d.directory); d.notMounted != nil {
		return d
	}
	t.Cleanup(func() {
		if err := run("umount", d.directory); err != nil {
			t.Error(err)
		}
	})
	return d
}

// fill writes a file until no space is left, and returns a function that removes it.
func (d *disk) fill(t *testing.T) (free func()) {
	t.Helper()
	name := filepath.Join(d.directory, "filler")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	zeros := make([]byte, 64<<10)
	for ; len(zeros) > 0; zeros = zeros[:len(zeros)/2] { // to the last byte
		for err = nil; err == nil; {
			_, err = file.Write(zeros)
		}
		if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, io.ErrShortWrite) {
			t.Fatalf("filling the disk: %v", err)
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// testFullDisk fills the disk of alpha's etcd. etcd ends, and logs the reason. The shard keeps running, is not ready, and names the
// store; other shards are unaffected. When the disk has space again, etcd and the shard recover without help, and have all acknowledged
// writes.
func (*processFaults) testFullDisk(f *processFaults) {
	if f.disk.notMounted != nil {
		f.Skipf("a small disk needs the right to mount one: %v", f.disk.notMounted)
	}
	before := f.countFailures()
	acknowledged := f.checkAcknowledged(f.writers[alpha])
	process := f.Process(f.T, alpha)
	free := f.disk.fill(f.parentT)
	began := time.Now()
	f.waitForEtcdToFail()
	f.Logf("etcd ended %s after its disk was full", time.Since(began).Round(time.Millisecond))
	f.expectFullDiskMessages()
	f.etcd.run(f.parentT, f.etcd.Directory()) // as often as one likes
	f.waitForEtcdToFail()
	f.expectServing(before, root, beta)
	if p := f.Process(f.T, alpha); p != process {
		f.Error("alpha has another process")
	}
	select {
	case <-process.Exited():
		f.Fatalf("alpha has ended:\n%s", process.Tail())
	default:
	}

	free()
	began = time.Now()
	f.etcd.run(f.parentT, f.etcd.Directory())
	f.waitForRecovery(alpha)
	f.Logf("writes succeed %s after the start of etcd with space", time.Since(began).Round(time.Millisecond))
	if now := f.checkAcknowledged(f.writers[alpha]); now < acknowledged {
		f.Errorf("%d writes, before %d", now, acknowledged)
	}
	f.expectHealthyShards("after-the-full-disk")
	f.expectServing(before, root, beta)
}

// waitForEtcdToFail waits until the etcd of alpha ends, and checks that it names the reason.
func (f *processFaults) waitForEtcdToFail() {
	f.Helper()
	shardtesting.EventuallyWithin(f.T, 3*time.Minute, "etcd ends", func(context.Context) error {
		select {
		case <-f.etcd.Exited():
			return nil
		default:
			return errors.New("it runs")
		}
	})
	if !strings.Contains(f.etcd.Output(), "no space left on device") {
		f.Errorf("etcd does not say why it ended:\n%s", f.etcd.Tail())
	}
}

// expectFullDiskMessages checks what administrators see: the readiness of the shard, its object in root, and the status of
// a request.
func (f *processFaults) expectFullDiskMessages() {
	f.Helper()
	shardtesting.Eventually(f.T, "the shard is not ready", func(context.Context) error {
		response, body := shardtesting.Send(f.T, f.Masters(f.T, alpha), http.MethodGet, "/readyz?verbose", "")
		if response.StatusCode == http.StatusOK || !strings.Contains(body, "[-]etcd failed") {
			return fmt.Errorf("%s: %s", response.Status, body)
		}
		f.Logf("/readyz of alpha: %s\n%s", response.Status, failedChecks(body))
		return nil
	})
	f.Logf("a write to alpha: %v", f.writers[alpha].lastFailure())
	if isFull() { // a shard that cannot count what it has does not report, which counts after a while
		f.expectShardCondition("whether its etcd answers")
	}
}

// expectShardCondition waits until the Shard object of alpha is not Ready, with a message.
func (f *processFaults) expectShardCondition(message string) {
	f.Helper()
	shardtesting.EventuallyWithin(f.T, 2*time.Minute, "the Shard object says so", func(ctx context.Context) error {
		var shard corev1alpha1.Shard
		if err := f.admin.Get(shardtesting.In(ctx, "root"), client.ObjectKey{Name: alpha}, &shard); err != nil {
			return err
		}
		got := conditionsv1alpha1.GetMessage(&shard, conditionsv1alpha1.Ready)
		if conditionsv1alpha1.IsTrue(&shard, conditionsv1alpha1.Ready) || !strings.Contains(got, message) {
			return fmt.Errorf("%+v", shard.Status.Conditions)
		}
		f.Logf("condition Ready of Shard alpha: %s: %s", conditionsv1alpha1.GetReason(&shard, conditionsv1alpha1.Ready), got)
		return nil
	})
}

func failedChecks(body string) string {
	var out []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return strings.Join(out, "\n")
}
