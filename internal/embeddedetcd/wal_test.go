package embeddedetcd

import "testing"

func TestSetWALSize(t *testing.T) {
	for _, test := range []struct {
		bytes   int64
		refused bool
	}{{bytes: 5000}, {bytes: 5000}, {bytes: 0}, {bytes: 6000, refused: true}, {bytes: -1, refused: true}, {bytes: 5000}} {
		if err := SetWALSize(test.bytes); (err != nil) != test.refused {
			t.Errorf("%d bytes: %v, want it to be refused: %v", test.bytes, err, test.refused)
		}
	}
}
