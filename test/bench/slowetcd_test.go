package bench

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/atoll-dev/atoll/test/programs"
)

const (
	// etcdDelay is added to each response of etcd: an etcd on other machines answers a write in some milliseconds.
	etcdDelay = 5 * time.Millisecond
	// slowEtcdClients create objects at once.
	slowEtcdClients = 64
)

// BenchmarkSlowEtcd measures how many config maps one user creates with an etcd that answers late, in a workspace and in
// a kube-apiserver. Requests wait for etcd and not for processors, so that the number of concurrent requests decides.
func BenchmarkSlowEtcd(b *testing.B) {
	recordDuration(b)
	for range b.N {
		etcd := startEtcd(b)
		delayed := &etcdServer{url: startDelay(b, etcd.url, etcdDelay), client: etcd.client}
		stock := newAdministrator(b, startStock(b, delayed), "writer")
		workspace := newTenant(b, startShard(b, delayed), "writer")
		rates := map[*tenant][]float64{}
		for range repetitions {
			for _, t := range []*tenant{stock, workspace} {
				stop := t.startLoad(b, loadProfile{Name: "writes", Method: http.MethodPost, Workers: slowEtcdClients})
				time.Sleep(window)
				served, refused := stop()
				if refused > 0 {
					b.Errorf("%.0f requests a second were refused", refused)
				}
				rates[t] = append(rates[t], served)
			}
		}
		ours, theirs := median(rates[workspace]), median(rates[stock])
		record("config maps of one user with a late etcd", ours, "1/s",
			fmt.Sprintf("stock %.1f; ratio %.2f; medians of %d; %d clients, responses of etcd delayed by %s", theirs, ours/theirs, repetitions, slowEtcdClients, etcdDelay))
	}
}

// startDelay forwards connections to the server of a URL and delays its responses. It returns the URL of the forwarder.
func startDelay(b *testing.B, url string, delay time.Duration) string {
	b.Helper()
	target := strings.TrimPrefix(url, "http://")
	listener, err := net.Listen("tcp", programs.FreeAddress(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forwardDelayed(client, target, delay)
		}
	}()
	return "http://" + listener.Addr().String()
}

func forwardDelayed(client net.Conn, target string, delay time.Duration) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	type chunk struct {
		due  time.Time
		data []byte
	}
	chunks := make(chan chunk, 1024)
	var failed atomic.Bool
	go func() {
		defer close(chunks)
		for !failed.Load() {
			data := make([]byte, 32<<10)
			n, err := server.Read(data)
			if n > 0 {
				chunks <- chunk{time.Now().Add(delay), data[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for c := range chunks {
		time.Sleep(time.Until(c.due))
		if _, err := client.Write(c.data); err != nil {
			failed.Store(true)
		}
	}
}
