package image_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/registry"

	"github.com/agbox-dev/agbox/dockerrt/image"
	"github.com/agbox-dev/agbox/test/dockertest"
)

// helpers are credential helpers by name. %[1]s is the registry's host.
var helpers = map[string]string{
	"right":   `read host; [ "$1 $host" = "get %[1]s" ] && echo '{"Username":"alice","Secret":"` + password + `"}'`,
	"none":    `echo "credentials not found in native keychain"; exit 1`,
	"fails":   `echo "boom ` + password + `"; exit 3`,
	"garbage": `echo "` + password + `"`,
	"floods":  `exec cat /dev/zero`,
	"hangs":   `exec 3>"$FIFO"; echo x >&3; sleep 1000 & sleep 1000`,
	"leaves":  `setsid cat "$FIFO" & sleep 1000`, // what holds the output is out of reach
}

func TestCredentials(t *testing.T) {
	api, h := dockertest.Engine(t), dockertest.NewRegistry(t, true)
	ref, id := h.Push(t, api, "agbox-test/private:a", 1)
	bin := t.TempDir()
	for name, script := range helpers {
		if strings.Contains(script, "%[1]s") {
			script = fmt.Sprintf(script, h.Host)
		}
		check(t, os.WriteFile(filepath.Join(bin, "docker-credential-"+name), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	login := func(secret string) string {
		auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + secret))
		return fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, h.Host, auth)
	}
	helper := func(name string) string { return fmt.Sprintf(`{"credHelpers":{%q:%q}}`, h.Host, name) }
	denied := []string{h.Host, "docker login " + h.Host}
	for _, c := range []struct {
		name, config string
		says         []string // of ErrDenied; nil where the pull works
	}{
		{"none", "", append(denied, "no credentials (there are none for it in ", "config.json")},
		{"for another", `{"auths":{"other.example":{"auth":"YTpi"}}}`, append(denied, "there are none for it in ")},
		{"wrong", login("wrong"), append(denied, "was shown the credentials of ", "config.json")},
		{"not JSON", `{"auths":`, append(denied, "no credentials (", "config.json", "unexpected EOF")},
		{"right", login(password), nil},
		{"a helper for the registry", helper("right"), nil},
		{"a helper for all", `{"credsStore":"right"}`, nil},
		{"helper has none", helper("none"), append(denied, "there are none for it in docker-credential-none")},
		{"helper fails", helper("fails"), append(denied, "credential helper docker-credential-fails failed: exit status 3")},
		{"helper is missing", helper("missing"), append(denied, "credential helper docker-credential-missing failed", "not found")},
		{"helper talks nonsense", helper("garbage"), append(denied, "docker-credential-garbage did not answer with credentials")},
		{"helper talks without end", helper("floods"), append(denied, "docker-credential-floods failed", "more than")},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, api, c.config)
			found, err := s.Ensure(patient(t), ref, image.Missing, nil)
			if c.says != nil {
				wantError(t, err, image.ErrDenied, "IMAGE_PULL_DENIED", c.says...)
				return
			}
			if err != nil || found.ID != id {
				t.Errorf("got %s, %v, want %s", found.ID, err, id)
			}
			dockertest.RemoveImage(t, api, ref)
		})
	}

	t.Run("helper hangs", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fifo")
		check(t, syscall.Mkfifo(path, 0o600))
		fifo, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		check(t, err)
		defer fifo.Close()
		t.Setenv("FIFO", path)
		s := newStore(t, api, helper("hangs"))
		s.SetTimes(0, time.Second)
		_, err = s.Ensure(patient(t), ref, image.Missing, nil)
		wantError(t, err, image.ErrDenied, "IMAGE_PULL_DENIED", append(denied, "docker-credential-hangs gave no answer within 1s")...)
		check(t, fifo.SetReadDeadline(time.Now().Add(time.Minute)))
		if said, err := io.ReadAll(fifo); string(said) != "x\n" || err != nil {
			t.Errorf("the helper's processes wrote %q, then %v; want x and their end", said, err)
		}
	})

	t.Run("helper leaves a process", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "fifo")
		check(t, syscall.Mkfifo(path, 0o600))
		fifo, err := os.OpenFile(path, os.O_RDWR, 0) // while it is open, cat runs
		check(t, err)
		defer fifo.Close()
		t.Setenv("FIFO", path)
		s := newStore(t, api, helper("leaves"))
		s.SetTimes(0, time.Second)
		_, err = s.Ensure(patient(t), ref, image.Missing, nil)
		wantError(t, err, image.ErrDenied, "IMAGE_PULL_DENIED", append(denied, "docker-credential-leaves gave no answer within 1s")...)
	})

	t.Run("read anew, never logged", func(t *testing.T) {
		var log bytes.Buffer
		dir := t.TempDir()
		s := image.New(api, dir, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		defer s.Close()
		for _, config := range []string{helper("fails"), login(password)} {
			check(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
			_, err := s.Ensure(patient(t), ref, image.Missing, nil)
			if worked := err == nil; worked != (config == login(password)) {
				t.Errorf("with %s: %v", config, err)
			}
		}
		s.Close()
		if !strings.Contains(log.String(), "docker-credential-fails") || strings.Contains(log.String(), password) {
			t.Errorf("the log is %s", &log)
		}
	})

	t.Run("where the environment says", func(t *testing.T) {
		dockertest.RemoveImage(t, api, ref)
		dir := t.TempDir()
		check(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(login(password)), 0o600))
		t.Setenv("DOCKER_CONFIG", dir)
		s := image.New(api, "", slog.New(slog.NewTextHandler(t.Output(), nil)))
		defer s.Close()
		_, err := s.Ensure(patient(t), ref, image.Missing, nil)
		check(t, err)
	})
}

// What Docker Hub is shown, under the name that docker login knows it by.
func TestIdentityToken(t *testing.T) {
	bin := t.TempDir()
	check(t, os.WriteFile(filepath.Join(bin, "docker-credential-hub"), []byte("#!/bin/sh\n"+
		`read key; [ "$key" = https://index.docker.io/v1/ ] && echo '{"Username":"<token>","Secret":"`+password+`"}'`), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	var shown *registry.AuthConfig
	api := script(func(r *http.Request, _ io.Writer) (err error) {
		shown, err = registry.DecodeAuthConfig(r.Header.Get(registry.AuthHeader))
		return err
	}).api(t)
	s := newStore(t, api, `{"credHelpers":{"https://index.docker.io/v1/":"hub"}}`)
	_, err := s.Ensure(t.Context(), "x:pulled", "", nil)
	check(t, err)
	if shown.IdentityToken != password || shown.Username != "" || shown.Password != "" {
		t.Errorf("the registry is shown %+v", shown)
	}
}
