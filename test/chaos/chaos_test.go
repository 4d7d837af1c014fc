package chaos_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/test/chaos"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestChaos is the short form of make chaos.
func TestChaos(t *testing.T) {
	t.Parallel()
	engine := dockertest.Engine(t)
	dockertest.TinyImage(t, engine, dockertest.Busybox)
	for name, config := range map[string]chaos.Config{
		"kill -9":            {Seed: 1, Rounds: 6, Sandboxes: 3, Window: 500 * time.Millisecond, Primaries: 0.2},
		"with panics":        {Seed: 3, Rounds: 4, Sandboxes: 3, Window: 500 * time.Millisecond, Panics: 0.03},
		"one long command":   {Seed: 4, Sandboxes: 1, Window: 500 * time.Millisecond, Long: 4 * time.Second},
		"with engine faults": {Seed: 2, Rounds: 4, Sandboxes: 2, Window: 500 * time.Millisecond, Faults: true},
	} {
		t.Run(name, func(t *testing.T) {
			binary, err := crashpoints()
			if err != nil {
				t.Fatal(err)
			}
			config.Agboxd = binary
			// A socket's path must be short, which a test's own directory is not.
			if config.Dir, err = os.MkdirTemp("", "agbox-chaos"); err != nil {
				t.Fatal(err)
			}
			result, err := chaos.Run(t.Context(), config)
			if err != nil {
				t.Errorf("%v; see %s", err, config.Dir)
			} else if err := os.RemoveAll(config.Dir); err != nil {
				t.Error(err)
			}
			if result.Report == nil {
				return
			}
			var text strings.Builder
			if err := result.Print(&text); err != nil {
				t.Error(err)
			}
			t.Logf("seed %d, %d kills, %d panics, faults %v\n%s", config.Seed, result.Kills, result.Panics, result.Faults, &text)
			if config.Panics > 0 && result.Panics == 0 {
				t.Error("no actor has panicked")
			}
			for _, violation := range result.Violations() {
				t.Error(violation)
			}
		})
	}
}
