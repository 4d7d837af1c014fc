package image

import (
	"testing"

	"github.com/docker/docker/pkg/jsonmessage"
)

func TestLayers(t *testing.T) {
	ls := layers{image: "x"}
	for i, c := range []struct {
		id, status     string
		current, total int64
		moved          bool
		want           Progress
	}{
		{"latest", "Pulling from library/x", 0, 0, false, Progress{}},
		{"a", fsLayer, 0, 0, true, Progress{Layers: 1}},
		{"b", fsLayer, 0, 0, true, Progress{Layers: 2}},
		{"b", waiting, 0, 0, true, Progress{Layers: 2}},
		{"b", waiting, 0, 0, false, Progress{Layers: 2}},
		{"c", exists, 0, 0, true, Progress{Layers: 3, LayersDone: 1}},
		{"a", downloading, 10, 100, true, Progress{Done: 10, Total: 100, Layers: 3, LayersDone: 1}},
		{"a", downloading, 10, 100, false, Progress{Done: 10, Total: 100, Layers: 3, LayersDone: 1}},
		{"a", "Retrying in 5 seconds", 0, 0, false, Progress{Done: 10, Total: 100, Layers: 3, LayersDone: 1}},
		{"a", downloading, 3, 100, true, Progress{Done: 10, Total: 100, Layers: 3, LayersDone: 1}},
		{"b", downloading, 7, -1, true, Progress{Done: 10, Total: 100, Layers: 3, LayersDone: 1}},
		{"a", verifying, 0, 0, true, Progress{Done: 100, Total: 100, Layers: 3, LayersDone: 1}},
		{"a", downloaded, 0, 0, true, Progress{Done: 100, Total: 100, Layers: 3, LayersDone: 1}},
		{"a", extracting, 1, 100, true, Progress{Done: 100, Total: 100, Layers: 3, LayersDone: 1}},
		{"b", extracting, 1, 20, true, Progress{Done: 120, Total: 120, Layers: 3, LayersDone: 1}},
		{"a", pulled, 0, 0, true, Progress{Done: 120, Total: 120, Layers: 3, LayersDone: 2}},
		{"", "Digest: sha256:1", 0, 0, false, Progress{Done: 120, Total: 120, Layers: 3, LayersDone: 2}},
	} {
		moved := ls.apply(jsonmessage.JSONMessage{
			ID: c.id, Status: c.status, Progress: &jsonmessage.JSONProgress{Current: c.current, Total: c.total},
		})
		c.want.Image = "x"
		if got := ls.progress(); moved != c.moved || got != c.want {
			t.Errorf("%d: %s %q: moved %t, %+v; want %t, %+v", i, c.id, c.status, moved, got, c.moved, c.want)
		}
	}
	if end := (Progress{Image: "x", Done: 120, Total: 120, Layers: 3, LayersDone: 3}); ls.end() != end {
		t.Errorf("at the end %+v, want %+v", ls.end(), end)
	}
}
