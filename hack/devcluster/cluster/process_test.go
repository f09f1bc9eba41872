package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRemovalScript(t *testing.T) {
	saved, err := os.ReadFile(filepath.Join("testdata", "iptables-save.txt"))
	if err != nil {
		t.Fatal(err)
	}
	checkGolden(t, "iptables-removal.txt", []byte(renderRemovalScript(string(saved))))
}

func TestRemovalScriptWithoutClusterChains(t *testing.T) {
	const saved = "*filter\n:INPUT ACCEPT [0:0]\n:DOCKER-USER - [0:0]\n-A INPUT -j DOCKER-USER\nCOMMIT\n"
	if script := renderRemovalScript(saved); script != "" {
		t.Errorf("got %q", script)
	}
}

func TestParseStat(t *testing.T) {
	got, err := parseStat("42 (odd) name (x)) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2\n")
	if err != nil {
		t.Fatal(err)
	}
	if want := (stat{state: "S", parent: 7, started: "987654"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := parseStat("42 (short) S 7"); err == nil {
		t.Error("a truncated line was accepted")
	}
}

func TestIsShim(t *testing.T) {
	const socket = "/run/atoll-devcluster/containerd.sock"
	for name, tc := range map[string]struct {
		command string
		want    bool
	}{
		"ours":                          {"/usr/bin/containerd-shim-runc-v2 -namespace k8s.io -id x -address " + socket, true},
		"another containerd's":          {"/usr/bin/containerd-shim-runc-v2 -namespace moby -id x -address /run/containerd/containerd.sock", false},
		"a client of our socket":        {"ctr -address " + socket + " version", false},
		"a shim that lost its argument": {"containerd-shim-runc-v2 -address", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isShim(strings.Fields(tc.command), socket); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestDescendants(t *testing.T) {
	got := descendants(map[int]int{10: 1, 11: 10, 12: 11, 13: 10, 20: 1, 21: 20}, []int{10})
	slices.Sort(got)
	if !slices.Equal(got, []int{11, 12, 13}) {
		t.Errorf("got %v", got)
	}
}

func TestStalePIDFile(t *testing.T) {
	layout := Layout{State: t.TempDir()}
	if err := os.MkdirAll(layout.path("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The pid exists, but started at another time.
	if err := os.WriteFile(layout.pid("etcd"), []byte("1 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, alive := layout.runningPID("etcd"); alive {
		t.Error("process 1 was taken for etcd")
	}
}

func TestStartStop(t *testing.T) {
	layout := Layout{State: t.TempDir()}
	p := process{name: "sleep", path: "/bin/sleep", args: []string{"600"}}
	for i, want := range []bool{true, false} {
		if started, err := layout.start(p); err != nil || started != want {
			t.Fatalf("start %d: %v, %v", i, started, err)
		}
	}
	if _, alive := layout.runningPID("sleep"); !alive {
		t.Error("it does not run")
	}
	if err := layout.stop("sleep"); err != nil {
		t.Fatal(err)
	}
	if _, alive := layout.runningPID("sleep"); alive {
		t.Error("it still runs")
	}
	if err := layout.stop("sleep"); err != nil {
		t.Errorf("ending what does not run: %v", err)
	}
}

func TestListMountsBelow(t *testing.T) {
	const info = `36 35 98:0 / /state/kubelet/pods/a/volumes/b rw - tmpfs tmpfs rw
37 35 98:0 / /state rw - ext4 /dev/x rw
38 35 98:0 / /stately rw - ext4 /dev/x rw
39 35 98:0 / /state/with\040blank rw - ext4 /dev/x rw
`
	want := []string{"/state/kubelet/pods/a/volumes/b", "/state/with blank", "/state"}
	if got := listMountsBelow(info, "/state"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
