package dialguard

import "testing"

func TestControl(t *testing.T) {
	for address, refused := range map[string]bool{
		"169.254.169.254:443":          true,
		"[fe80::1]:443":                true,
		"[fe80::1%eth0]:443":           true,
		"[::ffff:169.254.169.254]:443": true,
		"[64:ff9b::a9fe:a9fe]:443":     true,
		"0.0.0.0:443":                  true,
		"[::]:443":                     true,
		"224.0.0.1:443":                true,
		"[ff02::1]:443":                true,
		"100.100.100.200:443":          true,
		"[::ffff:100.100.100.200]:443": true,
		"[fd00:ec2::254]:443":          true,
		"[fd00:ec2::254%eth0]:443":     true,
		"168.63.129.16:80":             true,
		"[fd20:ce::254]:80":            true,
		"a-name:443":                   true, // not resolved
		"100.100.100.201:443":          false,
		"10.0.0.1:443":                 false,
		"192.0.2.1:6443":               false,
		"127.0.0.1:6443":               false,
		"[64:ff9b::a00:1]:443":         false,
		"[fd00:ec3::254]:443":          false,
		"[2001:db8::1]:443":            false,
	} {
		if err := Control("tcp", address, nil); (err != nil) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
}
