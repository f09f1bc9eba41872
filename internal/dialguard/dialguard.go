// Package dialguard keeps connections to addresses that tenants choose, such as those of webhooks, token issuers and
// mounts, away from addresses that only machines and their cloud have. It must not decide about anything but addresses.
package dialguard

import (
	"errors"
	"net/netip"
	"syscall"
)

// errRefused does not show the address, which a host name of a tenant may have resolved to.
var errRefused = errors.New("the address is link-local, multicast, unspecified, or that of a metadata service")

// metadataServices are the addresses outside of the link-local ranges where clouds serve the metadata and secrets of
// machines.
var metadataServices = []netip.Prefix{
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle Cloud
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd00:42::42/128"),    // Scaleway
	netip.MustParsePrefix("fd20:ce::254/128"),   // Google Cloud
}

// nat64 is the prefix of IPv6 addresses that gateways translate to the IPv4 address in their last four bytes.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// Control is a net.Dialer.Control that refuses such addresses. It runs after name resolution, so that host names cannot
// bypass it.
func Control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if isRefused(target.Addr()) {
		return errRefused
	}
	return nil
}

func isRefused(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("") // no prefix contains an address with a zone
	if nat64.Contains(ip) {
		bytes := ip.As16()
		ip = netip.AddrFrom4([4]byte(bytes[12:]))
	}
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
		return true
	}
	for _, prefix := range metadataServices {
		if prefix.Contains(ip) {
			return true
		}
	}
	return false
}
