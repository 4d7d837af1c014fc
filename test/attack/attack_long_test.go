//go:build long

package main

import (
	"testing"
	"time"

	"github.com/agbox-dev/agbox/test/chaos"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// TestLongAttacks is the short form of make attack: each attack once.
func TestLongAttacks(t *testing.T) {
	engine := dockertest.Engine(t)
	dockertest.TinyImage(t, engine, dockertest.Busybox)
	if _, err := chaos.Built(); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), config{duration: time.Second, victims: 2, players: 4, out: t.Output()}); err != nil {
		t.Fatal(err)
	}
}
