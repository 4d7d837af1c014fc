package image

import (
	"testing"

	"github.com/docker/docker/api/types/events"
)

// TestConcerns: an event makes only those names unknown that it may be about, and all where it does not tell.
func TestConcerns(t *testing.T) {
	t.Parallel()
	const ours, other = "sha256:11", "sha256:22"
	for _, tt := range []struct {
		action events.Action
		id, of string
		want   bool
	}{
		{events.ActionTag, other, "busybox:1", true},
		{events.ActionTag, other, "docker.io/library/busybox:2", true},
		{events.ActionTag, other, "debian:1", false},
		{events.ActionTag, other, "", true},
		{events.ActionPull, "busybox:latest", "busybox", true},
		{events.ActionPull, "debian:latest", "debian", false},
		{events.ActionUnTag, ours, ours, true},
		{events.ActionUnTag, other, other, false},
		{events.ActionDelete, ours, ours, true},
		{events.ActionDelete, other, other, false},
		{events.ActionDelete, other, "busybox:1", true},
		{events.ActionLoad, other, other, true},
		{events.ActionImport, other, other, true},
	} {
		if got := concerns(tt.action, tt.id, tt.of, "busybox:1", ours); got != tt.want {
			t.Errorf("%s of %s, %q: %v", tt.action, tt.id, tt.of, got)
		}
	}
}
