package servercommand

import (
	"crypto/x509"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// A server with a certificate of a public CA is verified in an image without certificates of CAs. Processes read those once, so another
// one is started.
func TestPublicCAsAreTrustedInAnImageWithoutAny(t *testing.T) {
	const child = "ATOLL_TEST_WITHOUT_CERTIFICATES"
	if os.Getenv(child) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=true", "SSL_CERT_FILE=/nonexistent", "SSL_CERT_DIR=/nonexistent")
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return
	}
	verified := 0
	for root := range bundle.Roots() {
		certificate, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			t.Fatal(err)
		}
		if root.Constraint != nil {
			continue // it is for some certificates only
		}
		usages := []x509.ExtKeyUsage{x509.ExtKeyUsageAny}
		if _, err := certificate.Verify(x509.VerifyOptions{CurrentTime: certificate.NotBefore, KeyUsages: usages}); err != nil {
			t.Errorf("%s: %v", certificate.Subject, err)
		}
		verified++
	}
	if verified == 0 {
		t.Error("there are no public CAs")
	}
}

// These connect to servers that users name: issuers, webhooks, mounts, or an installation at a public address.
func TestProgramsThatConnectToPublicServersTrustTheirCAs(t *testing.T) {
	for _, program := range []string{"kcp", "kcp-front-proxy", "virtual-workspaces", "sync-agent", "infrastructure-provider", "operator", "etcd"} {
		deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/atoll-dev/atoll/cmd/"+program).Output()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(deps), "\ngolang.org/x/crypto/x509roots/fallback\n") {
			t.Errorf("%s does not", program)
		}
	}
}
