package plugin

import (
	"errors"
	"fmt"
	"testing"
)

type codedError int

func (c codedError) Error() string { return "coded" }
func (c codedError) ExitCode() int { return int(c) }

func TestExitCode(t *testing.T) {
	for want, err := range map[int]error{1: errors.New("any"), 2: codedError(2), 3: fmt.Errorf("wrapped: %w", codedError(3))} {
		if got := exitCode(err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
}
