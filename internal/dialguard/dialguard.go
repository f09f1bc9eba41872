// Package dialguard prevents connections to addresses that tenants choose, such as those of webhooks, token issuers and mounts, if only
// machines and their cloud use these addresses. It must not decide about anything but addresses.
package dialguard

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"syscall"
)

// errRefused does not reveal the address, to which a host name of a tenant may have resolved.
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

// embedding is a range of IPv6 addresses that contain an IPv4 address, to which a gateway, a tunnel or a host sends.
type embedding struct {
	prefix netip.Prefix
	// offset is the position of the four bytes of the IPv4 address; invert is true if its bits are inverted.
	offset int
	invert bool
}

var embeddings = []embedding{
	{netip.MustParsePrefix("::/96"), 12, false},           // IPv4-compatible, RFC 4291
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, false}, // IPv4-translated, RFC 2765
	{netip.MustParsePrefix("64:ff9b::/96"), 12, false},    // NAT64, RFC 6052
	{netip.MustParsePrefix("2002::/16"), 2, false},        // 6to4, RFC 3056
	{netip.MustParsePrefix("2001::/32"), 4, false},        // Teredo, RFC 4380: the server,
	{netip.MustParsePrefix("2001::/32"), 12, true},        // and the client
}

// localNAT64 is the range of prefixes that networks choose for their NAT64, RFC 8215. The position of the IPv4 address depends on the
// length of the prefix.
var localNAT64 = netip.MustParsePrefix("64:ff9b:1::/48")

// isatap is the first half of the interface identifiers of ISATAP, RFC 5214, in any prefix; the second half is an IPv4 address. The bit
// that marks that address as unique is ignored.
const isatap, isatapUnique = 0x00005efe, 0x02000000

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
	if isInternal(ip) {
		return true
	}
	return ip.Is6() && slices.ContainsFunc(embedded(ip), isInternal)
}

// isInternal reports whether only machines and their cloud use an address.
func isInternal(ip netip.Addr) bool {
	return ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() ||
		slices.ContainsFunc(metadataServices, func(prefix netip.Prefix) bool { return prefix.Contains(ip) })
}

// embedded returns the IPv4 addresses that an IPv6 address may contain.
func embedded(ip netip.Addr) (found []netip.Addr) {
	bytes := ip.As16()
	if ip == netip.IPv6Loopback() {
		return nil // in ::/96, but not an IPv4 address
	}
	for _, e := range embeddings {
		if !e.prefix.Contains(ip) {
			continue
		}
		four := [4]byte(bytes[e.offset:])
		if e.invert {
			for i := range four {
				four[i] = ^four[i]
			}
		}
		found = append(found, netip.AddrFrom4(four))
	}
	if binary.BigEndian.Uint32(bytes[8:])&^isatapUnique == isatap {
		found = append(found, netip.AddrFrom4([4]byte(bytes[12:])))
	}
	if localNAT64.Contains(ip) {
		// RFC 6052, section 2.2, for prefixes of 48, 56, 64 and 96 bits: byte 8 is not part of the address. A gateway reads only one of
		// them. The others may be zero, or have the form of multicast addresses.
		for _, four := range [][4]byte{
			{bytes[6], bytes[7], bytes[9], bytes[10]},
			{bytes[7], bytes[9], bytes[10], bytes[11]},
			[4]byte(bytes[9:]),
			[4]byte(bytes[12:]),
		} {
			if ip := netip.AddrFrom4(four); !ip.IsUnspecified() && !ip.IsMulticast() {
				found = append(found, ip)
			}
		}
	}
	return found
}
