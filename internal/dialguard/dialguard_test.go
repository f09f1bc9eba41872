package dialguard

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestControl(t *testing.T) {
	for address, refused := range map[string]bool{
		"169.254.169.254:443":      true,
		"[fe80::1]:443":            true,
		"[fe80::1%eth0]:443":       true,
		"0.0.0.0:443":              true,
		"[::]:443":                 true,
		"224.0.0.1:443":            true,
		"[ff02::1]:443":            true,
		"100.100.100.200:443":      true,
		"[fd00:ec2::254]:443":      true,
		"[fd00:ec2::254%eth0]:443": true,
		"168.63.129.16:80":         true,
		"192.0.0.192:80":           true,
		"[fd00:42::42]:80":         true,
		"[fd20:ce::254]:80":        true,
		"a-name:443":               true, // not resolved
		"100.100.100.201:443":      false,
		"10.0.0.1:443":             false,
		"192.0.2.1:6443":           false,
		"127.0.0.1:6443":           false,
		"[::1]:6443":               false,
		"[fd00:ec3::254]:443":      false,
		"[2001:db8::1]:443":        false,
		"[2001:db8::a9fe:a9fe]:80": false, // ends like an address that it does not contain
	} {
		if err := Control("tcp", address, nil); (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestEmbeddedAddresses has every form of an IPv6 address that contains an IPv4 address.
func TestEmbeddedAddresses(t *testing.T) {
	for name, form := range map[string]func(four [4]byte) string{
		"IPv4-mapped":                    func(b [4]byte) string { return "::ffff:" + pairs(b) },
		"IPv4-mapped, dotted":            func(b [4]byte) string { return "::ffff:" + netip.AddrFrom4(b).String() },
		"IPv4-mapped, with a zone":       func(b [4]byte) string { return "::ffff:" + pairs(b) + "%eth0" },
		"IPv4-compatible":                func(b [4]byte) string { return "::" + pairs(b) },
		"IPv4-compatible, with a zone":   func(b [4]byte) string { return "::" + pairs(b) + "%1" },
		"IPv4-translated":                func(b [4]byte) string { return "::ffff:0:" + pairs(b) },
		"NAT64":                          func(b [4]byte) string { return "64:ff9b::" + pairs(b) },
		"NAT64, dotted":                  func(b [4]byte) string { return "64:ff9b::" + netip.AddrFrom4(b).String() },
		"NAT64, with a zone":             func(b [4]byte) string { return "64:ff9b::" + pairs(b) + "%eth0" },
		"local NAT64, prefix of 48 bits": func(b [4]byte) string { return fmt.Sprintf("64:ff9b:1:%x%02x:%x:%x::", b[0], b[1], b[2], int(b[3])<<8) },
		"local NAT64, prefix of 56 bits": func(b [4]byte) string { return fmt.Sprintf("64:ff9b:1:1%02x:%x:%x%02x::", b[0], b[1], b[2], b[3]) },
		"local NAT64, prefix of 64 bits": func(b [4]byte) string {
			return fmt.Sprintf("64:ff9b:1:1:%x:%x%02x:%x::", b[0], b[1], b[2], int(b[3])<<8)
		},
		"local NAT64, prefix of 96 bits": func(b [4]byte) string { return "64:ff9b:1::" + pairs(b) },
		"another local NAT64":            func(b [4]byte) string { return "64:ff9b:1:2:3:4:" + pairs(b) },
		"6to4":                           func(b [4]byte) string { return "2002:" + pairs(b) + "::1" },
		"6to4, a host of the network":    func(b [4]byte) string { return "2002:" + pairs(b) + ":1:2:3:4:5" },
		"Teredo, the server":             func(b [4]byte) string { return "2001:0:" + pairs(b) + ":0:1:f5ff:fffe" },
		"Teredo, the client":             func(b [4]byte) string { return "2001:0:c000:201:0:1:" + pairs([4]byte{^b[0], ^b[1], ^b[2], ^b[3]}) },
		"ISATAP":                         func(b [4]byte) string { return "2001:db8::5efe:" + pairs(b) },
		"ISATAP of a unique address":     func(b [4]byte) string { return "2001:db8::200:5efe:" + pairs(b) },
	} {
		for four, refused := range map[[4]byte]bool{
			{169, 254, 169, 254}: true,
			{169, 254, 0, 1}:     true,
			{100, 100, 100, 200}: true,
			{168, 63, 129, 16}:   true,
			{10, 0, 0, 1}:        false,
			{192, 0, 2, 1}:       false,
		} {
			address := "[" + form(four) + "]:443"
			if err := Control("tcp", address, nil); (err != nil) != refused {
				t.Errorf("%s, %v as %s: %v", name, netip.AddrFrom4(four), address, err)
			}
		}
	}
}

// pairs returns four bytes as they are written in an IPv6 address.
func pairs(b [4]byte) string {
	return fmt.Sprintf("%x:%x", int(b[0])<<8|int(b[1]), int(b[2])<<8|int(b[3]))
}
