package main

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/atoll-dev/atoll/test/reference"
)

func TestReference(t *testing.T) {
	t.Setenv("ATOLL_DEFAULT_IMAGE", "")
	cmd := &cobra.Command{Short: "Run kcp installations as described by objects of operator.kcp.io"}
	flags, _ := newFlags()
	cmd.Flags().AddGoFlagSet(flags)
	reference.Flags(t, "../../docs/reference/flags", "operator", cmd)
}
