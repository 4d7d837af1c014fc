package dockerrt

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
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	dockerimage "github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/docker/go-connections/nat"
	"github.com/google/uuid"

	"github.com/agbox-dev/agbox/dockerrt/engine"
)

// commit makes the container's file system an image under a name, with the configuration of base and the labels, and
// returns its size. An engine's own commit mixes in the container's configuration, of which nothing can be taken away:
// agbox-init as the entrypoint, our labels, the sandbox's variables. So it gives the layers only, and the image proper is
// loaded as a configuration of these layers, which the engine has. An engine that cannot do that, such as one with
// containerd's image store, keeps the mixture; what is in there beyond base, every sandbox sets anew.
func (d *Docker) commit(ctx context.Context, primary container.InspectResponse, base dockerimage.InspectResponse, created time.Time, image string, labels map[string]string) (size uint64, err error) {
	// A name of its own: an engine that finishes what a dead daemon asked for takes none from this one.
	name := halfMade(image) + uuid.NewString()[:8]
	rough, err := d.api.ContainerCommit(ctx, primary.ID, container.CommitOptions{Reference: name, Pause: true, Config: mixture(primary, base, labels)})
	if err != nil {
		return 0, fmt.Errorf("cannot commit container %s: %w", primary.Name, err)
	}
	size, err = d.load(ctx, rough.ID, base, created, image, labels)
	if err != nil {
		d.log.Info("a snapshot keeps the configuration of its container", "image", image, "reason", err)
		if err = d.api.ImageTag(ctx, rough.ID, image); err == nil {
			var found dockerimage.InspectResponse
			if found, err = d.api.ImageInspect(ctx, image); err == nil {
				return uint64(found.Size), nil
			}
		}
	}
	// Whatever becomes of this, the next start of the daemon removes it.
	if leftover := d.removeImage(ctx, name); leftover != nil {
		d.log.Warn("layers of a snapshot were not let go", "image", image, "error", leftover)
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
	own := valueOf(base.Config)
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
func (d *Docker) load(ctx context.Context, rough string, base dockerimage.InspectResponse, created time.Time, image string, labels map[string]string) (uint64, error) {
	layers, err := d.api.ImageInspect(ctx, rough)
	if err != nil {
		return 0, fmt.Errorf("cannot inspect image %s: %w", rough, err)
	}
	config := valueOf(base.Config)
	config.Labels = ownLabels(config.Labels, labels)
	document := imageConfig{Created: created, Author: base.Author, Architecture: base.Architecture, Variant: base.Variant,
		OS: base.Os, OSVersion: base.OsVersion, Config: config}
	document.RootFS.Type, document.RootFS.DiffIDs = layers.RootFS.Type, layers.RootFS.Layers
	archive, err := loadable(image, document)
	if err != nil {
		return 0, err
	}
	response, err := d.api.ImageLoad(ctx, archive, client.ImageLoadWithQuiet(true))
	if err != nil {
		return 0, fmt.Errorf("cannot load image %s: %w", image, err)
	}
	err = jsonmessage.DisplayJSONMessagesStream(response.Body, io.Discard, 0, false, nil)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return 0, fmt.Errorf("cannot load image %s: %w", image, err)
	}
	found, err := d.api.ImageInspect(ctx, image)
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

// valueOf is what p points to, or nothing.
func valueOf[T any](p *T) (value T) {
	if p != nil {
		value = *p
	}
	return value
}
