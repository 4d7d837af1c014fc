package bound_test

import (
	"testing"

	"github.com/agbox-dev/agbox/gateway/bound"
)

// TestBound: nobody has more than its part, all have not more than there is, and what is given back twice counts once.
func TestBound(t *testing.T) {
	t.Parallel()
	b := bound.New(3, 2)
	take := func(owner string, want bool) func() {
		t.Helper()
		release, ok := b.Take(owner)
		if ok != want {
			t.Fatalf("%s takes: %v, want %v", owner, ok, want)
		}
		return release
	}
	first := take("a", true)
	take("a", true)
	take("a", false)
	take("b", true)
	take("b", false)
	first()
	first()
	take("b", true)
	take("a", false)
}
