package image

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/cli/cli/config/types"
	"github.com/docker/docker-credential-helpers/client"
	helpers "github.com/docker/docker-credential-helpers/credentials"
	"github.com/docker/docker/api/types/registry"
)

const (
	// hub is the domain of references to Docker Hub, hubKey the name that docker login gives it.
	hub    = "docker.io"
	hubKey = "https://index.docker.io/v1/"
	// tokenUser is what a helper calls the user when the secret is an identity token.
	tokenUser = "<token>"
	// helperLimit is far above any answer: a token has a few thousand bytes.
	helperLimit = 1 << 20
	// helperGrace is for what a killed helper left holding its output.
	helperGrace = time.Second
)

// credentials are what a registry is shown. As text they tell where they come from and nothing that is in them.
type credentials struct {
	header string // for the engine; "" when there are none
	source string
	broken error // why there are none, where they were to be had
}

func (c credentials) String() string {
	switch {
	case c.broken != nil:
		return fmt.Sprintf("no credentials (%v)", c.broken)
	case c.header == "":
		return fmt.Sprintf("no credentials (there are none for it in %s)", c.source)
	}
	return "the credentials of " + c.source
}

// credentialsFor finds what the user's Docker config in dir has for a registry: of the helper that it names, bounded by
// limit, else the file's own or $DOCKER_AUTH_CONFIG's. What fails on the way leaves none, as with Docker's own tools: most
// images need none.
func credentialsFor(ctx context.Context, dir, host string, limit time.Duration) credentials {
	key := host
	if host == hub {
		key = hubKey
	}
	file, err := config.Load(dir)
	used := credentials{source: file.Filename}
	if err != nil {
		used.broken = fmt.Errorf("%s: %w", file.Filename, err)
		return used
	}
	auth, name := types.AuthConfig{}, helperOf(file, key)
	if name == "" {
		auth, err = file.GetAuthConfig(key)
	} else {
		used.source = name
		auth, err = ask(ctx, name, key, limit)
	}
	if err != nil {
		used.broken = err
		return used
	}
	if auth.Username != "" || auth.IdentityToken != "" || auth.RegistryToken != "" {
		used.header, used.broken = registry.EncodeAuthConfig(registry.AuthConfig(auth))
	}
	return used
}

func helperOf(file *configfile.ConfigFile, key string) string {
	suffix, ok := file.CredentialHelpers[key]
	if !ok {
		suffix = file.CredentialsStore
	}
	if suffix == "" {
		return ""
	}
	return "docker-credential-" + suffix
}

// ask has a helper program say what it holds. The library's own way to run it knows no time limit, and its errors quote
// what the program wrote, which may be a secret.
func ask(ctx context.Context, name, key string, limit time.Duration) (types.AuthConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	run := &helper{cmd: exec.CommandContext(ctx, name, helpers.ActionGet)}
	got, err := client.Get(func(...string) client.Program { return run }, key)
	switch {
	case err == nil:
	case helpers.IsErrCredentialsNotFound(err):
		return types.AuthConfig{}, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return types.AuthConfig{}, fmt.Errorf("credential helper %s gave no answer within %s", name, limit)
	case run.err != nil:
		return types.AuthConfig{}, fmt.Errorf("credential helper %s failed: %w", name, run.err)
	default:
		return types.AuthConfig{}, fmt.Errorf("credential helper %s did not answer with credentials", name)
	}
	if got.Username == tokenUser {
		return types.AuthConfig{ServerAddress: key, IdentityToken: got.Secret}, nil
	}
	return types.AuthConfig{ServerAddress: key, Username: got.Username, Password: got.Secret}, nil
}

// helper is one run of a credential helper, in a process group of its own that ends with it.
type helper struct {
	cmd *exec.Cmd
	err error
}

func (h *helper) Input(in io.Reader) { h.cmd.Stdin = in }

func (h *helper) Output() ([]byte, error) {
	var out answer
	h.cmd.Stdout = &out
	h.cmd.WaitDelay = helperGrace
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.cmd.Cancel = func() error { return syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) }
	h.err = h.cmd.Run()
	h.err = cmp.Or(out.err, h.err)
	return out.text.Bytes(), h.err
}

// answer is what a helper writes, up to helperLimit.
type answer struct {
	text bytes.Buffer
	err  error
}

func (a *answer) Write(p []byte) (int, error) {
	if a.text.Len()+len(p) > helperLimit {
		a.err = fmt.Errorf("it wrote more than %d bytes", helperLimit)
		return 0, a.err
	}
	return a.text.Write(p)
}
