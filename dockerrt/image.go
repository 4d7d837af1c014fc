package dockerrt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/docker/docker/api/types/image"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// images finds images, and pulls each missing one once for all who wait.
type images struct {
	mu    sync.Mutex
	pulls map[string]*pull
}

type pull struct {
	done chan struct{}
	err  error
}

// imageConfig is what a sandbox needs to know of its image.
type imageConfig struct {
	id         string
	entrypoint []string
	user       string
}

// ensureImage returns the image, pulling it when the engine does not have it.
func (d *Docker) ensureImage(ctx context.Context, reference string, report func(lifecycle.Command)) (imageConfig, error) {
	config, err := d.inspectImage(ctx, reference)
	if !isNotFound(err) {
		return config, err
	}
	report(lifecycle.Preparing{Phase: "pull"})
	if err := d.pullOnce(ctx, reference); err != nil {
		return config, coded("IMAGE_PULL_FAILED",
			"image %s is not on this engine and cannot be pulled: %w: check the name, or load it with docker load", reference, err)
	}
	return d.inspectImage(ctx, reference)
}

func (d *Docker) inspectImage(ctx context.Context, reference string) (imageConfig, error) {
	ctx, cancel := d.read(ctx)
	defer cancel()
	found, err := d.api.ImageInspect(ctx, reference)
	if err != nil {
		return imageConfig{}, fmt.Errorf("cannot inspect image %s: %w", reference, err)
	}
	config := imageConfig{id: found.ID}
	if found.Config != nil {
		config.entrypoint, config.user = found.Config.Entrypoint, found.Config.User
	}
	return config, nil
}

// pullOnce joins a pull of the same reference that is under way. The one who began it pulls for all, and goes
// on only as long as it waits itself; the others then begin again.
func (d *Docker) pullOnce(ctx context.Context, reference string) error {
	for {
		d.images.mu.Lock()
		p, joined := d.images.pulls[reference], true
		if p == nil {
			p, joined = &pull{done: make(chan struct{})}, false
			d.images.pulls[reference] = p
		}
		d.images.mu.Unlock()
		if !joined {
			p.err = d.pull(ctx, reference)
			d.images.mu.Lock()
			delete(d.images.pulls, reference)
			d.images.mu.Unlock()
			close(p.done)
			return p.err
		}
		select {
		case <-p.done:
			if !errors.Is(p.err, context.Canceled) {
				return p.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Docker) pull(ctx context.Context, reference string) error {
	body, err := d.api.ImagePull(ctx, reference, image.PullOptions{})
	if err != nil {
		return err
	}
	defer body.Close()
	for messages := json.NewDecoder(body); ; {
		var message struct{ Error string }
		if err := messages.Decode(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if message.Error != "" {
			return errors.New(message.Error)
		}
	}
}
