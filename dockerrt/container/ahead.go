package container

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/docker/docker/api/types/image"

	"github.com/agbox-dev/agbox/actors/runtime"
	"github.com/agbox-dev/agbox/dockerrt/engine"
	"github.com/agbox-dev/agbox/dockerrt/links"
	"github.com/agbox-dev/agbox/guest/link"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Made is a digest of all that the container is that would be made now.
func (cs *Containers) Made(sandboxID string, spec *agboxv1.CreateSpec, image image.InspectResponse) string {
	config, host := cs.primaryConfig(sandboxID, spec, image)
	config.Labels = nil // which have the process that made it
	text, err := json.Marshal([]any{config, host})
	if err != nil {
		return err.Error()
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// identity is what a sandbox is to become that took a place, nil for any other: its container says all of it.
func (cs *Containers) identity(sandboxID string, spec *agboxv1.CreateSpec) *link.Identity {
	if cs.engine.Place(sandboxID) == sandboxID {
		return nil
	}
	return &link.Identity{Env: engine.Environ(spec.Envs), User: spec.User, Workdir: spec.WorkingDir, Command: spec.Command}
}

// BootTaken boots a sandbox that took a place and has no command of its own.
func (cs *Containers) BootTaken(ctx context.Context, sandboxID string, to *links.Link, spec *agboxv1.CreateSpec) error {
	stdout, stderr, err := cs.layout.OpenOutputs(sandboxID, runtime.CommandID)
	if err != nil {
		return err
	}
	defer stdout.Close()
	defer stderr.Close()
	_, err = to.Boot(ctx, cs.identity(sandboxID, spec), stdout, stderr, nil)
	return err
}
