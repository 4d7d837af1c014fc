package image

import "github.com/docker/docker/pkg/jsonmessage"

// Progress is how far a pull has come. Of one pull no field ever gets smaller, and at a successful end Done is Total
// and LayersDone is Layers.
type Progress struct {
	// Image is the reference in its short form.
	Image string
	// Done and Total are bytes of download over the layers whose size is known so far. A layer that the engine has
	// already, or that is too small to be told about, counts for none.
	Done, Total int64
	// Layers are those known so far; LayersDone are unpacked, or were there before.
	Layers, LayersDone int
}

// layers is what the messages of one pull have told of its layers.
type layers struct {
	image string
	list  []*layer
}

type layer struct {
	id          string
	last        string // status of its newest message
	current     int64  // number in its newest message
	done, total int64  // bytes, only ever more
	complete    bool
}

// The phases of a layer, as the engine words them. Bytes belong to one phase: unpacking starts from zero again.
const (
	waiting     = "Waiting"
	fsLayer     = "Pulling fs layer"
	downloading = "Downloading"
	verifying   = "Verifying Checksum"
	downloaded  = "Download complete"
	extracting  = "Extracting"
	pulled      = "Pull complete"
	exists      = "Already exists"
)

// apply takes a message in, and tells whether it says that something moved: other bytes or another phase of a layer.
// All else moves nothing, such as the countdown to the next attempt. An engine that unpacks with containerd tells the
// seconds that it takes, not the bytes: those count, or a big layer on a slow disk would be a stall.
func (ls *layers) apply(m jsonmessage.JSONMessage) bool {
	switch m.Status {
	case waiting, fsLayer, downloading, verifying, downloaded, extracting, pulled, exists:
	default:
		return false
	}
	l := ls.layer(m.ID)
	var p jsonmessage.JSONProgress
	if m.Progress != nil {
		p = *m.Progress
	}
	moved := l.last != m.Status || l.current != p.Current
	l.last, l.current = m.Status, p.Current
	l.total = max(l.total, p.Total)
	switch m.Status {
	case downloading:
		l.done = max(l.done, min(p.Current, l.total))
	case verifying, downloaded, extracting:
		l.done = l.total
	case pulled, exists:
		l.done, l.complete = l.total, true
	}
	return moved
}

func (ls *layers) layer(id string) *layer {
	for _, l := range ls.list {
		if l.id == id {
			return l
		}
	}
	l := &layer{id: id}
	ls.list = append(ls.list, l)
	return l
}

func (ls *layers) progress() Progress {
	now := Progress{Image: ls.image, Layers: len(ls.list)}
	for _, l := range ls.list {
		now.Done, now.Total = now.Done+l.done, now.Total+l.total
		if l.complete {
			now.LayersDone++
		}
	}
	return now
}

// end is the progress of a pull that succeeded: what was not told about is there too.
func (ls *layers) end() Progress {
	now := ls.progress()
	now.Done, now.LayersDone = now.Total, now.Layers
	return now
}
