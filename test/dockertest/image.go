package dockertest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"

	"github.com/agbox-dev/agbox/test/dockertest/skiplog"
)

// Variant names one of the tiny images.
type Variant string

const (
	// Busybox has every busybox applet in /bin and a user agbox (1000:1000) whose home is /home/agbox.
	Busybox Variant = "busybox"
	// NoShell holds nothing but /bin/probe (see the probe command): no shell, no /etc/passwd, no /tmp.
	NoShell Variant = "noshell"
	// RootOnly is Busybox without the user agbox.
	RootOnly Variant = "rootonly"
	// ImageUser is RootOnly configured with USER 1234, a number that /etc/passwd does not know.
	ImageUser Variant = "imageuser"
	// EntrypointPrepares is RootOnly with an entrypoint that adds the user agbox, writes "<uid> <arguments>" to
	// /prepared, prints "entrypoint: prepared" and ends in exec "$@".
	EntrypointPrepares Variant = "entrypoint-prepares"
	// EntrypointExits is Busybox with an entrypoint that prints "entrypoint: giving up" on stderr and exits 3.
	EntrypointExits Variant = "entrypoint-exits"
	// EntrypointStays is Busybox with an entrypoint that prints "entrypoint: waiting" and never hands over.
	EntrypointStays Variant = "entrypoint-stays"
	// HealthChecked is Busybox with a health check that writes the uid it runs as to /checked, every second.
	HealthChecked Variant = "healthchecked"
)

// TinyImage makes sure that the engine has the image and returns its reference. It needs Debian's
// busybox-static on this machine, except for NoShell; without it t is skipped as by Engine.
func TinyImage(t testing.TB, cli *client.Client, v Variant) string {
	t.Helper()
	ref, err := EnsureImage(t.Context(), cli, v)
	if errors.Is(err, ErrNoBusybox) {
		skiplog.Skip(t, err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// EnsureImage is TinyImage outside of a test. It fails with ErrNoBusybox where busybox-static is missing.
func EnsureImage(ctx context.Context, cli *client.Client, v Variant) (string, error) {
	once, _ := recipes.LoadOrStore(v, sync.OnceValues(func() (recipe, error) { return recipeOf(v) }))
	made, err := once.(func() (recipe, error))()
	if err == nil {
		err = importOnce(ctx, cli, made)
	}
	if err != nil {
		return "", fmt.Errorf("image %s: %w", v, err)
	}
	return made.ref, nil
}

// recipe is all that a tiny image is made of.
type recipe struct {
	ref     string
	rootfs  []byte
	changes []string
}

// recipes holds, for each Variant that was asked for in this process, what makes its recipe once.
var recipes sync.Map

func recipeOf(v Variant) (recipe, error) {
	rootfs, changes, err := content(v)
	if err != nil {
		return recipe{}, err
	}
	return recipe{fmt.Sprintf("agbox-test/%s:%s", v, digest(rootfs, changes)), rootfs, changes}, nil
}

// digest names content: the same bytes and changes always get the same tag.
func digest(rootfs []byte, changes []string) string {
	h := sha256.New()
	h.Write(rootfs)
	for _, c := range changes {
		fmt.Fprintf(h, "\n%s", c)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// importOnce holds a lock of the machine, so that test processes beside each other make an image once.
func importOnce(ctx context.Context, cli *client.Client, r recipe) error {
	if have, err := HasImage(ctx, cli, r.ref); have || err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("agbox-test-%d.lock", os.Getuid())), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if have, err := HasImage(ctx, cli, r.ref); have || err != nil {
		return err
	}
	return Import(ctx, cli, r.ref, bytes.NewReader(r.rootfs), r.changes)
}

// HasImage tells whether the engine holds ref.
func HasImage(ctx context.Context, cli *client.Client, ref string) (bool, error) {
	_, err := cli.ImageInspect(ctx, ref)
	if cerrdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// Import makes an image of one layer from a root file system (a tar) and tags it ref. Changes are Dockerfile
// instructions (CMD, ENTRYPOINT, ENV, USER, WORKDIR, …).
func Import(ctx context.Context, cli *client.Client, ref string, rootfs io.Reader, changes []string) error {
	source := image.ImportSource{Source: rootfs, SourceName: "-"}
	progress, err := cli.ImageImport(ctx, source, ref, image.ImportOptions{Changes: changes})
	if err != nil {
		return fmt.Errorf("import %s: %w", ref, err)
	}
	defer progress.Close()
	for lines := json.NewDecoder(progress); ; {
		var line struct {
			Error string `json:"error"`
		}
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("import %s: %w", ref, err)
		case line.Error != "":
			return fmt.Errorf("import %s: %s", ref, line.Error)
		}
	}
}
