package expression

import "testing"

func TestHashes(t *testing.T) {
	if got := SHA1Hex("default"); got != "7505d64a54e061b7acd54ccd58b49dc43500b635" {
		t.Error(got)
	}
	if got := ShortHash("default"); got != "7505d64a54e061b7acd5" {
		t.Error(got)
	}
	for s, want := range map[string]string{"objnamespace": "2928c2aa0e510f017f07", "objname": "73d08a1ba188f1340dae"} {
		if got, err := sha3short(s); err != nil || got != want {
			t.Errorf("sha3short of %s is %s, %v", s, got, err)
		}
	}
}
