//go:build long

package life_test

import (
	"testing"
)

func TestLongMixedClients(t *testing.T) {
	t.Parallel()
	mixedClients(t, 64)
}
