package actorstest

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/agbox-dev/agbox/actors/runtime"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// places are what was made ahead.
type places struct {
	vacant map[string]runtime.Place
	// taken are the places of sandboxes, occupied those that are theirs for good.
	taken    map[string]string
	occupied map[string]string
}

// VacantPlaces returns the places that no sandbox has, in order.
func (r *Runtime) VacantPlaces() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.places.vacant))
}

// PlaceOf returns the place that is the sandbox's for good, "" for none.
func (r *Runtime) PlaceOf(sandboxID string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.places.occupied[sandboxID]
}

// HalfMake leaves a place as a daemon does that dies while it makes one.
func (r *Runtime) HalfMake(place string, spec *agboxv1.CreateSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.place(runtime.Place{ID: place, Spec: spec})
}

func (r *Runtime) place(p runtime.Place) {
	if r.places.vacant == nil {
		r.places.vacant = map[string]runtime.Place{}
	}
	r.places.vacant[p.ID] = p
}

// DieAt ends what was made ahead at the place, and has the watcher told.
func (r *Runtime) DieAt(place string) { r.Die(place) }

// Retag has an image's name mean another image, and the watcher told.
func (r *Runtime) Retag(image, id string) {
	r.mu.Lock()
	images := maps.Clone(r.Images)
	if images == nil {
		images = map[string]string{}
	}
	images[image] = id
	r.Images = images
	r.mu.Unlock()
	r.watch <- func(w runtime.Watcher) { w.ImagesChanged() }
}

func (r *Runtime) ImageID(image string) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, changed := r.Images[image]
	if !changed {
		id = image
	}
	return id, id != ""
}

func (r *Runtime) Warm(ctx context.Context, place string, spec *agboxv1.CreateSpec) (runtime.Place, error) {
	made := runtime.Place{ID: place, Spec: spec, Ready: true}
	made.Image, _ = r.ImageID(spec.Image)
	if err := r.before(ctx, "warm "+spec.Image); err != nil {
		return made, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.place(made)
	return made, nil
}

func (r *Runtime) Vacant(context.Context) ([]runtime.Place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := slices.Collect(maps.Values(r.places.taken))
	return slices.DeleteFunc(slices.Collect(maps.Values(r.places.vacant)), func(p runtime.Place) bool { return slices.Contains(taken, p.ID) }), nil
}

func (r *Runtime) Vacate(ctx context.Context, place string) error {
	if err := r.before(ctx, "vacate"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.places.vacant, place)
	return nil
}

func (r *Runtime) Reserve(sandboxID, place string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.places.taken == nil {
		r.places.taken, r.places.occupied = map[string]string{}, map[string]string{}
	}
	r.places.taken[sandboxID] = place
}

func (r *Runtime) Release(sandboxID, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.places.taken, sandboxID)
}

// Occupy records its call, "occupy box-1", the first time.
func (r *Runtime) Occupy(sandboxID, place string, spec *agboxv1.CreateSpec) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.places.occupied[sandboxID] == place {
		return nil
	}
	r.calls = append(r.calls, "occupy "+sandboxID)
	r.log(sandboxID, "took "+strings.TrimPrefix(place, runtime.PlacePrefix))
	if r.places.taken[sandboxID] != place {
		r.overlap = append(r.overlap, "occupy "+sandboxID+" without its place")
	}
	for other, where := range r.places.occupied {
		if where == place {
			r.overlap = append(r.overlap, place+" is of "+other+" and "+sandboxID)
		}
	}
	delete(r.places.vacant, place)
	r.places.occupied[sandboxID] = place
	r.specs[sandboxID], r.running[sandboxID] = spec, true
	return nil
}
