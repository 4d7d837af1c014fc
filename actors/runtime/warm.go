package runtime

import (
	"context"
	"errors"
	"strings"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// PlacePrefix begins the ids of places, and of no sandbox.
const PlacePrefix = "warm."

// IsPlace reports whether the id is a place's.
func IsPlace(id string) bool { return strings.HasPrefix(id, PlacePrefix) }

// ErrUnfit: no sandbox of this kind can be made ahead; the words after it say why.
var ErrUnfit = errors.New("cannot be made ahead")

// Place is a sandbox that was made ahead, or half made.
type Place struct {
	ID string
	// Spec is what it was made from, Image the id of its image.
	Spec  *agboxv1.CreateSpec
	Image string
	// Ready: it runs, nothing ran in it, and one that is made now would be the same.
	Ready bool
}

// Warmer makes sandboxes ahead. Each is at a place of its own, under no sandbox's id, until a sandbox takes it.
type Warmer interface {
	// Warm makes one from spec at a new place and returns when a sandbox could take it. It removes what it made before it returns an
	// error, which wraps ErrUnfit where a later try would fail as well.
	Warm(ctx context.Context, place string, spec *agboxv1.CreateSpec) (Place, error)
	// Vacant lists those that no sandbox has taken, half made ones included. It is called after Occupy of all that are taken.
	Vacant(ctx context.Context) ([]Place, error)
	// Vacate leaves nothing of a place that no sandbox has taken.
	Vacate(ctx context.Context, place string) error
	// Reserve has what is asked of the sandbox meant for the place, until Release, which undoes it. Neither does any I/O.
	Reserve(sandboxID, place string)
	Release(sandboxID, place string)
	// Occupy makes the place the sandbox's for good, and is called again for each that lives when a daemon starts. One that is ReadyAtOnce
	// gets its environment, user and directory, before any command; others when Create carries on. It waits for no engine.
	Occupy(sandboxID, place string, spec *agboxv1.CreateSpec) error
	// ImageID returns the id of the image that a create would use now; false where that is not known without asking the engine.
	ImageID(image string) (id string, known bool)
}

// ReadyAtOnce reports whether nothing has to happen in a sandbox that was made ahead before it is READY: no files are copied, and no
// command of its own starts.
func ReadyAtOnce(spec *agboxv1.CreateSpec) bool {
	return len(spec.GetCopies())+len(spec.GetCommand()) == 0
}

type missKey struct{}

// WithMiss has Create record why no sandbox that was made ahead was taken.
func WithMiss(ctx context.Context, why string) context.Context {
	return context.WithValue(ctx, missKey{}, why)
}

// Miss returns what WithMiss was given, "" without it.
func Miss(ctx context.Context) string {
	why, _ := ctx.Value(missKey{}).(string)
	return why
}
