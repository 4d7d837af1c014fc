package image_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/client"
	"go.uber.org/goleak"

	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/test/dockertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	user, password = dockertest.RegistryUser, dockertest.RegistryPassword
	// patience ends what hangs; nothing here takes a tenth of it.
	patience = 90 * time.Second
)

// newStore is a Store with the credentials of a config.json, none for "".
func newStore(t *testing.T, api *client.Client, config string) *image.Store {
	t.Helper()
	dir := t.TempDir()
	if config != "" {
		check(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	}
	s := image.New(api, dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	t.Cleanup(s.Close)
	return s
}

func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func receive[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-patient(t).Done():
		t.Fatalf("no %s within %s", what, patience)
	}
	return v
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError checks an error's kind, its code and what a person reads.
func wantError(t *testing.T, err, kind error, code string, words ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	coded, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err)
	if !ok || coded.ErrorCode() != code {
		t.Errorf("%v: want code %s", err, code)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("%q has the password in it", err)
	}
}
