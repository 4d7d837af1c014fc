package actors_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/agbox-dev/agbox/actors"
	"github.com/agbox-dev/agbox/actors/lifecycle"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// mounting is a spec with mounts: each a path, with ":rw" for a writable one.
func mounting(sources ...string) *agboxv1.CreateSpec {
	spec := &agboxv1.CreateSpec{Image: "image"}
	for i, source := range sources {
		path, writable := strings.CutSuffix(source, ":rw")
		spec.Mounts = append(spec.Mounts, &agboxv1.MountSpec{Source: path, Target: "/" + string(rune('a'+i)), Writable: writable})
	}
	return spec
}

// TestOverlap: no sandbox mounts what lies in a directory that another one may write to, in whichever order they come and
// whatever state they are in, until one is deleted. The same directory for both is fine, and so is all that is read-only.
func TestOverlap(t *testing.T) {
	for name, test := range map[string]struct {
		first, second *agboxv1.CreateSpec
		want          string
	}{
		"the same, writable":    {mounting("/p:rw"), mounting("/p:rw"), ""},
		"below a writable one":  {mounting("/x", "/p:rw"), mounting("/y", "/p/data"), `create_spec.mounts[1].source: "/p/data" lies in "/p", which sandbox box-1 may write to`},
		"both writable":         {mounting("/p:rw"), mounting("/p/data:rw"), "lies in"},
		"above, writable":       {mounting("/p/data"), mounting("/p:rw"), `"/p" cannot be mounted writable: sandbox box-1 has "/p/data" of it`},
		"below a read-only one": {mounting("/p"), mounting("/p/data:rw"), ""},
		"beside":                {mounting("/p:rw"), mounting("/pp", "/q:rw"), ""},
		"in one spec":           {mounting("/q"), mounting("/p:rw", "/p/data"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.create("box-1", test.first)
				synctest.Wait()
				w.restart()
				create := func(id string) error {
					_, err := w.system.Create(t.Context(), id, test.second, "")
					return err
				}
				err := create("box-2")
				if test.want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if !errors.Is(err, actors.ErrOverlap) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %q", err, test.want)
				}
				w.request("box-1", lifecycle.Delete{})
				synctest.Wait()
				if err := create("box-2"); err != nil {
					t.Errorf("once the other one is deleted: %v", err)
				}
			})
		})
	}
}

// TestOverlapOfCreates: two creates at once are told apart as well.
func TestOverlapOfCreates(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		errs := make(chan error, 2)
		for id, spec := range map[string]*agboxv1.CreateSpec{"box-1": mounting("/p:rw"), "box-2": mounting("/p/data")} {
			go func() {
				_, err := w.system.Create(t.Context(), id, spec, "")
				errs <- err
			}()
		}
		first, second := <-errs, <-errs
		if (first == nil) == (second == nil) || !errors.Is(errors.Join(first, second), actors.ErrOverlap) {
			t.Errorf("got %v and %v", first, second)
		}
	})
}
