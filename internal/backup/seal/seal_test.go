package seal

import (
	"strings"
	"testing"

	"filippo.io/age"
)

func TestParseRecipients(t *testing.T) {
	classic, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	hybrid, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		keys []string
		want string
	}{
		"a key is accepted":                         {[]string{classic.Recipient().String()}, ""},
		"a key that is safe from quantum computers": {[]string{hybrid.Recipient().String()}, ""},
		"both together are refused":                 {[]string{classic.Recipient().String(), hybrid.Recipient().String()}, "encrypting to all recipients together"},
		"no key is refused":                         {nil, "no recipients"},
		"a private key is refused":                  {[]string{classic.String()}, "recipient 0 is no public key of age"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseRecipients(tc.keys)
			if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), classic.String())) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if err == nil && len(got) != len(tc.keys) {
				t.Errorf("got %d recipients", len(got))
			}
		})
	}
}
