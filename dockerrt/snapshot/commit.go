package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/docker/go-connections/nat"
	"github.com/google/uuid"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// A snapshot is made in two steps: commit has the engine read the container's file system, and keep makes an image of it, with the
// configuration of base and the labels. An engine's own commit mixes in the container's configuration, of which nothing can be taken
// away: agbox-init as the entrypoint, our labels, the sandbox's variables. So it gives the layers only, and the image proper is loaded as a
// configuration of these layers, which the engine has. An engine that cannot do that, such as one with containerd's image store, keeps the
// mixture; what is in there beyond base, every sandbox sets anew.

// committed is an image with the layers of a snapshot.
type committed struct{ id, name string }

// commit returns when the engine has read the file system, or with ctx: then the container goes on at once. The engine reads on, which nobody
// can stop, and what it has made goes when it has.
func (st *Store) commit(ctx context.Context, primary container.InspectResponse, base dockerimage.InspectResponse, image string, labels map[string]string) (committed, error) {
	// A name of its own: an engine that finishes what a dead daemon asked for takes none from this one.
	rough := committed{name: halfMade(image) + uuid.NewString()[:8]}
	running := primary.State.Running && !primary.State.Paused
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxTime)
	stop := context.AfterFunc(st.engine.Closed(), cancel)
	began, done, wanted := time.Now(), make(chan error, 1), make(chan bool, 1)
	made := container.CommitResponse{}
	st.late.Go(func() {
		defer cancel()
		defer stop()
		var err error
		made, err = st.engine.ContainerCommit(reading, primary.ID, container.CommitOptions{Reference: rough.name, Pause: true, Config: mixture(primary, base, labels)})
		done <- err
		if !<-wanted && err == nil {
			st.letGo(reading, rough)
		}
	})
	select {
	case err := <-done:
		left := context.Cause(ctx)
		wanted <- left == nil
		if err != nil {
			return rough, fmt.Errorf("cannot commit container %s: %w", primary.Name, err)
		}
		rough.id = made.ID
		return rough, left
	case <-ctx.Done():
		wanted <- false
		if running {
			st.release(primary, began, done)
		}
		return rough, context.Cause(ctx)
	}
}

// release has a container go on that the engine has paused to read it, or is about to.
func (st *Store) release(primary container.InspectResponse, began time.Time, done <-chan error) {
	ctx, cancel := st.engine.Write(context.Background())
	defer cancel()
	paused, lost := st.engine.Events(ctx, events.ListOptions{Since: strconv.FormatInt(began.Unix(), 10), Filters: filters.NewArgs(
		filters.Arg("container", primary.ID), filters.Arg("event", string(events.ActionPause)))})
	for {
		select {
		case event := <-paused:
			if event.TimeNano < began.UnixNano() {
				continue
			}
			if err := st.engine.ContainerUnpause(ctx, primary.ID); err != nil {
				st.log.Warn("a sandbox stands still until the engine has read it", "container", primary.Name, "error", err)
			}
		case <-lost:
		case <-done:
		}
		return
	}
}

// letGo lets go of layers. Whatever becomes of them here, the next start of the daemon removes them.
func (st *Store) letGo(ctx context.Context, rough committed) {
	if err := st.removeImage(ctx, rough.name); err != nil {
		st.log.Warn("layers of a snapshot were not let go", "image", rough.name, "error", err)
	}
}

// keep makes the image of its name, or none, and returns its size.
func (st *Store) keep(ctx context.Context, rough committed, base dockerimage.InspectResponse, created time.Time, image string, labels map[string]string) (size uint64, err error) {
	given := ctx
	ctx, cancel := st.engine.Write(ctx)
	defer cancel()
	defer st.letGo(ctx, rough)
	size, err = st.load(ctx, rough.id, base, created, image, labels)
	if err != nil {
		st.log.Info("a snapshot keeps the configuration of its container", "image", image, "reason", err)
		if err = st.engine.ImageTag(ctx, rough.id, image); err == nil {
			var found dockerimage.InspectResponse
			found, err = st.engine.ImageInspect(ctx, image)
			size = uint64(found.Size)
		}
	}
	if err == nil && given.Err() != nil { // whoever wanted it has left
		err = errors.Join(context.Cause(given), st.removeImage(ctx, image))
	}
	return size, err
}

// halfMadePrefix begins the names of images that are on their way to be a snapshot.
const halfMadePrefix = "agbox-half-made:"

// halfMade is what the name of a snapshot's image begins with until that has its own.
func halfMade(image string) string {
	_, tag, _ := strings.Cut(image, ":")
	return halfMadePrefix + tag + "."
}

// mixture is what to commit with, so that the result works as a sandbox's image: lists that are empty in base stay so,
// and our labels, which the container has, select nothing.
func mixture(primary container.InspectResponse, base dockerimage.InspectResponse, labels map[string]string) *container.Config {
	own := engine.ValueOf(base.Config)
	config := &container.Config{
		User: own.User, Env: own.Env, Cmd: own.Cmd, WorkingDir: own.WorkingDir, StopSignal: own.StopSignal,
		Entrypoint: append([]string{}, own.Entrypoint...), Volumes: own.Volumes, OnBuild: own.OnBuild, Shell: own.Shell,
		ExposedPorts: nat.PortSet{}, Labels: ownLabels(own.Labels, labels), Healthcheck: own.Healthcheck,
	}
	for port := range own.ExposedPorts {
		config.ExposedPorts[nat.Port(port)] = struct{}{}
	}
	if own.Healthcheck != nil { // which the container has switched off
		check := container.HealthConfig(*own.Healthcheck)
		config.Healthcheck = &check
	}
	for key := range primary.Config.Labels {
		if _, set := config.Labels[key]; !set {
			config.Labels[key] = ""
		}
	}
	return config
}

// ownLabels are those of the image that a sandbox was made from, without any of ours, and new ones.
func ownLabels(base, labels map[string]string) map[string]string {
	own := maps.Clone(labels)
	for key, value := range base {
		if !strings.HasPrefix(key, engine.LabelNamespace+".") {
			own[key] = value
		}
	}
	return own
}

// imageConfig is the document that an image is, as far as engines read it.
type imageConfig struct {
	Created      time.Time `json:"created"`
	Author       string    `json:"author,omitempty"`
	Architecture string    `json:"architecture"`
	Variant      string    `json:"variant,omitempty"`
	OS           string    `json:"os"`
	OSVersion    string    `json:"os.version,omitempty"`
	Config       any       `json:"config"`
	RootFS       struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// load gives the engine an image of layers that it has, and returns its size.
func (st *Store) load(ctx context.Context, rough string, base dockerimage.InspectResponse, created time.Time, image string, labels map[string]string) (uint64, error) {
	layers, err := st.engine.ImageInspect(ctx, rough)
	if err != nil {
		return 0, fmt.Errorf("cannot inspect image %s: %w", rough, err)
	}
	config := engine.ValueOf(base.Config)
	config.Labels = ownLabels(config.Labels, labels)
	document := imageConfig{Created: created, Author: base.Author, Architecture: base.Architecture, Variant: base.Variant,
		OS: base.Os, OSVersion: base.OsVersion, Config: config}
	document.RootFS.Type, document.RootFS.DiffIDs = layers.RootFS.Type, layers.RootFS.Layers
	archive, err := loadable(image, document)
	if err != nil {
		return 0, err
	}
	response, err := st.engine.ImageLoad(ctx, archive, client.ImageLoadWithQuiet(true))
	if err != nil {
		return 0, fmt.Errorf("cannot load image %s: %w", image, err)
	}
	err = jsonmessage.DisplayJSONMessagesStream(response.Body, io.Discard, 0, false, nil)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return 0, fmt.Errorf("cannot load image %s: %w", image, err)
	}
	found, err := st.engine.ImageInspect(ctx, image)
	if err == nil && !slices.Equal(found.RootFS.Layers, layers.RootFS.Layers) {
		err = errors.New("it has other layers than was asked for")
	}
	if err != nil {
		return 0, fmt.Errorf("image %s is not what was loaded: %w", image, err)
	}
	return uint64(found.Size), nil
}

// loadable is the archive that "docker save" writes, without the layers: an engine does not look for the files of those
// that it has.
func loadable(image string, document imageConfig) (io.Reader, error) {
	const name = "config.json"
	manifest := []struct {
		Config           string
		RepoTags, Layers []string
	}{{name, []string{image}, document.RootFS.DiffIDs}}
	archive := &bytes.Buffer{}
	writer := tar.NewWriter(archive)
	for _, file := range []struct {
		name    string
		content any
	}{{name, document}, {"manifest.json", manifest}} {
		text, err := json.Marshal(file.content)
		if err != nil {
			return nil, fmt.Errorf("dockerrt: cannot write an image's %s: %w", file.name, err)
		}
		if err := writer.WriteHeader(&tar.Header{Name: file.name, Mode: 0o600, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := writer.Write(text); err != nil {
			return nil, err
		}
	}
	return archive, writer.Close()
}
