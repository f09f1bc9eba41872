package cacheserver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/atoll-dev/atoll/cacheserver/options"
	cachetesting "github.com/atoll-dev/atoll/cacheserver/testing"
	"github.com/atoll-dev/atoll/internal/writetimeout"
	unread "github.com/atoll-dev/atoll/internal/writetimeout/testing"
)

// TestUnreadResponses does not read responses, which the server ends.
func TestUnreadResponses(t *testing.T) {
	cache := cachetesting.Start(t, func(o *options.Options) {
		// Longer than a loaded machine keeps a process from running: the timeout also applies to writes of the connection.
		o.WriteTimeouts = writetimeout.Timeouts{Response: 5 * time.Second, Watch: time.Hour}
	})
	// The stock authentication ends the HTTP/2 connection of a client without credentials after its first response: requests that
	// follow would get none.
	config, err := rest.TLSConfigFor(cache.Masters(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := unread.Dial(t.Context(), strings.TrimPrefix(cache.Address, "https://"), config, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range 10 {
		if err := c.Get("/readyz"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the responses end", func(context.Context) error {
		if count := c.Count(); count.Reset != 10 {
			return fmt.Errorf("%+v", count)
		}
		return nil
	})
}
