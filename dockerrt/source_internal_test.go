package dockerrt

import (
	"testing"

	"github.com/docker/docker/api/types/mount"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestGiven: an engine that can is told to make all that is below a read-only source read-only, or to fail.
func TestGiven(t *testing.T) {
	for _, test := range []struct {
		able, writable bool
		want           *mount.BindOptions
	}{
		{true, false, &mount.BindOptions{ReadOnlyForceRecursive: true, Propagation: mount.PropagationRPrivate}},
		{true, true, nil}, {false, false, nil}, {false, true, nil},
	} {
		d := &Docker{readOnlyBelow: test.able}
		got := d.given(&agboxv1.MountSpec{Source: "/s", Target: "/t", Writable: test.writable})
		if got.ReadOnly == test.writable || (got.BindOptions == nil) != (test.want == nil) || test.want != nil && *got.BindOptions != *test.want {
			t.Errorf("%+v: %+v, %+v", test, got, got.BindOptions)
		}
	}
	for version, want := range map[string]bool{"5.12.0": true, "6.1.0-13-amd64": true, "5.11.22": false, "4.19": false, "5.4.0-150-generic": false, "": false, "x": false} {
		if atLeast(version, 5, 12) != want {
			t.Errorf("%q is at least 5.12: %v", version, !want)
		}
	}
}
