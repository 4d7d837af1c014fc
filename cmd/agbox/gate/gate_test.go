package gate_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agbox-dev/agbox/cmd/agbox/gate"
	"github.com/agbox-dev/agbox/gateway"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"),
		goleak.IgnoreAnyFunction("os/signal.signal_recv"))
}

// home sets the environment that a gateway is started in, beside a daemon's.
func home(t *testing.T) {
	t.Helper()
	_, socket := sdktest.Start(t)
	t.Setenv("XDG_RUNTIME_DIR", filepath.Dir(filepath.Dir(socket)))
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
}

// agbox runs a command and returns what it printed.
func agbox(ctx context.Context, out io.Writer, args ...string) error {
	json := false
	cmd := gate.Command(&json)
	cmd.SetArgs(args)
	cmd.SetOut(out)
	cmd.SetErr(io.Discard)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	return cmd.ExecuteContext(ctx)
}

func printed(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := agbox(t.Context(), &out, args...); err != nil {
		t.Fatalf("agbox gateway %s: %v", strings.Join(args, " "), err)
	}
	return out.String()
}

// running starts a gateway and returns what ends it, and what it prints.
func running(t *testing.T, args ...string) (end func() error, lines *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := agbox(ctx, writer, args...)
		writer.CloseWithError(err)
		ended <- err
	}()
	return func() error { cancel(); return <-ended }, bufio.NewReader(reader)
}

// TestFirstStart: without a token a gateway makes one and says how to use it; with one it does not; tokens that are made and
// revoked while it runs count at once.
func TestFirstStart(t *testing.T) {
	home(t)
	end, lines := running(t, "--listen", "127.0.0.1:0", "--tls-self-signed")
	env := map[string]string{}
	for len(env) < 8 {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if exports, ok := strings.CutPrefix(strings.TrimSpace(line), "export "); ok {
			for export := range strings.FieldsSeq(exports) {
				key, value, _ := strings.Cut(export, "=")
				env[key] = value
			}
		}
	}
	for _, key := range []string{"AGBOX_HOST", "AGBOX_TOKEN", "AGBOX_CA"} {
		t.Setenv(key, env[key])
	}
	if env["E2B_API_KEY"] != env["AGBOX_TOKEN"] || !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(env["E2B_API_KEY"]) || env["E2B_API_URL"] != env["AGBOX_HOST"] {
		t.Errorf("it printed %v", env)
	}
	ping := func() error {
		client, err := sdk.New() // by the environment
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		_, err = client.Ping(t.Context())
		return err
	}
	if err := ping(); err != nil {
		t.Errorf("with the first token: %v", err)
	}
	second := strings.TrimSpace(printed(t, "token", "add", "ci", "--label", "team=x", "--max-sandboxes", "20", "--max-cpus", "8", "--max-memory", "16g",
		"--rate", "50/s", "--expires", "30d", "--allow", "ports,gpus"))
	t.Setenv("AGBOX_TOKEN", second)
	if err := ping(); err != nil {
		t.Errorf("with the second token: %v", err)
	}
	list := printed(t, "token", "list")
	for _, want := range []string{`first +- +- +- +never`, `ci +team=x +20 sandboxes, 8 CPUs, 16GiB, 50/s +ports,gpus +20\d\d-`} {
		if !regexp.MustCompile(want).MatchString(list) {
			t.Errorf("the list has no %q:\n%s", want, list)
		}
	}
	if strings.Contains(list, second[4:]) {
		t.Error("the list tells a token")
	}
	printed(t, "token", "revoke", "ci")
	if err := ping(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("with a revoked token: %v", err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	again, cancel := context.WithCancel(t.Context())
	cancel() // it ends as soon as it serves
	var out bytes.Buffer
	if err := agbox(again, &out, "--listen", "127.0.0.1:0"); err != nil || out.Len() > 0 {
		t.Errorf("with tokens there, it printed %q, %v", &out, err)
	}
}

// TestRefusedStarts: what would not be safe, or is not understood, does not start.
func TestRefusedStarts(t *testing.T) {
	home(t)
	config := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "agents-sandbox", "config.toml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := agbox(t.Context(), io.Discard, "--listen", "0.0.0.0:0"); !errors.Is(err, gateway.ErrUnsafe) {
		t.Errorf("cleartext for all: %v", err)
	}
	for text, want := range map[string]string{
		"[gateway]\nlisten = \"0.0.0.0:0\"\n":                 "--tls-self-signed",
		"[gateway]\nlissten = \"127.0.0.1:0\"\n":              "gateway.lissten",
		"[gateway]\ntls_cert = \"/none\"\n":                   "go together",
		"[runtime]\nidle_ttl = \"1m\"\n[gateway]\nlisten = 1": "gateway.listen",
	} {
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := agbox(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, args := range [][]string{{"add", "a b"}, {"add", "x", "--rate", "50"}, {"add", "x", "--expires", "soon"}, {"add", "x", "--allow", "everything"},
		{"add", "x", "--label", "team"}, {"add", "x", "--max-memory", "lots"}, {"add", "x", "--max-cpus", "-1"}, {"revoke", "none"}} {
		if err := agbox(t.Context(), io.Discard, append([]string{"token"}, args...)...); err == nil {
			t.Errorf("token %v is accepted", args)
		}
	}
}

// TestDocumentedCommands: what docs/gateway.md says to type is understood.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(text)) {
		args, ok := strings.CutPrefix(line, "agbox gateway")
		if !ok {
			continue
		}
		seen++
		json := false
		cmd, rest, err := gate.Command(&json).Find(strings.Fields(args))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil && cmd.Args != nil {
			err = cmd.Args(cmd, cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s%v", line, err)
		}
	}
	if seen < 6 {
		t.Errorf("only %d commands were found", seen)
	}
}
