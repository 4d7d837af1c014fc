package mount

import (
	"testing"

	dockermount "github.com/docker/docker/api/types/mount"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestGiven: an engine that can is told to make all that is below a read-only source read-only, or to fail.
func TestGiven(t *testing.T) {
	for _, test := range []struct {
		able, writable bool
		want           *dockermount.BindOptions
	}{
		{true, false, &dockermount.BindOptions{ReadOnlyForceRecursive: true, Propagation: dockermount.PropagationRPrivate}},
		{true, true, nil}, {false, false, nil}, {false, true, nil},
	} {
		ms := New(nil, Config{ReadOnlyBelow: test.able})
		got := ms.given(&agboxv1.MountSpec{Source: "/s", Target: "/t", Writable: test.writable})
		if got.ReadOnly == test.writable || (got.BindOptions == nil) != (test.want == nil) || test.want != nil && *got.BindOptions != *test.want {
			t.Errorf("%+v: %+v, %+v", test, got, got.BindOptions)
		}
	}
}
