//go:build long

package exec_test

import (
	"testing"
)

// What the ordinary tests of these names do, with more of it.

func TestLongAttachMuch(t *testing.T) {
	t.Parallel()
	attachMuch(t, 64<<20)
}

func TestLongRelayMuch(t *testing.T) {
	t.Parallel()
	relayMuch(t, 50<<20)
}

func TestLongManyFollowers(t *testing.T) {
	t.Parallel()
	manyFollowers(t, 50)
}
