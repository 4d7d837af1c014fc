package access_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/agbox-dev/agbox/gateway/access"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/sdk/sdktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/asynkron/protoactor-go/actor.NewDeadLetter.NewThrottle.func4.1"))
}

// world is a daemon with two teams on it.
type world struct {
	*sdktest.Daemon
	daemon *raw.Client
	access *access.Access
	log    syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	d, socket := sdktest.Start(t)
	daemon, err := raw.Dial(raw.WithSocket(socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { daemon.Close() })
	tokens, err := access.OpenTokens(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Daemon: d, daemon: daemon}
	if w.access, err = access.New(tokens, daemon.Conn(), slog.New(slog.NewJSONHandler(&w.log, nil))); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) as(id access.Identity) agboxv1.SandboxServiceClient {
	return agboxv1.NewSandboxServiceClient(w.access.Conn(id))
}

func team(name string) access.Identity {
	return access.Identity{Name: name, Labels: map[string]string{"team": name}}
}

func create(t *testing.T, c agboxv1.SandboxServiceClient, id string) {
	t.Helper()
	_, err := c.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: id, CreateSpec: &agboxv1.CreateSpec{Image: "image"}})
	if err == nil {
		_, err = c.WaitSandbox(t.Context(), &agboxv1.WaitSandboxRequest{SandboxId: id, States: []agboxv1.SandboxState{agboxv1.SandboxState_SANDBOX_STATE_READY}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, c agboxv1.SandboxServiceClient, sandbox, id string) {
	t.Helper()
	if _, err := c.CreateExec(t.Context(), &agboxv1.CreateExecRequest{SandboxId: sandbox, ExecId: id, Command: []string{"sleep", "600"}}); err != nil {
		t.Fatal(err)
	}
}

// TestOthersAreNotThere: whatever a token asks of another team's sandbox, exec or snapshot, it is told what it is told of
// one that never was, to the last byte but the id.
func TestOthersAreNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	red, blue := w.as(team("red")), w.as(team("blue"))
	create(t, blue, "blue-box")
	start(t, blue, "blue-box", "blue-exec")
	if _, err := blue.SnapshotSandbox(t.Context(), &agboxv1.SnapshotSandboxRequest{SandboxId: "blue-box", SnapshotId: "blue-snap"}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	asks := map[string]func(c agboxv1.SandboxServiceClient, box, exec, snapshot string) error{
		"GetSandbox": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			_, err := c.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: box})
			return err
		},
		"StopSandbox": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			_, err := c.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: box})
			return err
		},
		"DeleteSandbox": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			_, err := c.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: box})
			return err
		},
		"ForkSandbox": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			_, err := c.ForkSandbox(ctx, &agboxv1.ForkSandboxRequest{SandboxId: box, ForkId: "fork-1"})
			return err
		},
		"SnapshotSandbox": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			_, err := c.SnapshotSandbox(ctx, &agboxv1.SnapshotSandboxRequest{SandboxId: box, SnapshotId: "snap-1"})
			return err
		},
		"CreateExec": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			_, err := c.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: box, Command: []string{"true"}})
			return err
		},
		"ListExecs": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			_, err := c.ListExecs(ctx, &agboxv1.ListExecsRequest{SandboxId: box})
			return err
		},
		"SubscribeSandboxEvents": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			stream, err := c.SubscribeSandboxEvents(ctx, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: box})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"DownloadFiles": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			stream, err := c.DownloadFiles(ctx, &agboxv1.DownloadFilesRequest{SandboxId: box, Path: "/etc"})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"UploadFiles": func(c agboxv1.SandboxServiceClient, box, _, _ string) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := c.UploadFiles(ctx)
			if err == nil {
				_ = stream.Send(&agboxv1.UploadFilesRequest{Message: &agboxv1.UploadFilesRequest_Start{Start: &agboxv1.UploadFilesStart{SandboxId: box, Path: "/"}}})
				_, err = stream.CloseAndRecv()
			}
			return err
		},
		"GetExec": func(c agboxv1.SandboxServiceClient, _, exec, _ string) error {
			_, err := c.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: exec})
			return err
		},
		"CancelExec": func(c agboxv1.SandboxServiceClient, _, exec, _ string) error {
			_, err := c.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: exec})
			return err
		},
		"ReadExecLog": func(c agboxv1.SandboxServiceClient, _, exec, _ string) error {
			stream, err := c.ReadExecLog(ctx, &agboxv1.ReadExecLogRequest{ExecId: exec})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"AttachExec": func(c agboxv1.SandboxServiceClient, _, exec, _ string) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := c.AttachExec(ctx)
			if err == nil {
				_ = stream.Send(&agboxv1.AttachExecRequest{Message: &agboxv1.AttachExecRequest_Start{Start: &agboxv1.AttachExecStart{ExecId: exec}}})
				_, err = stream.Recv()
			}
			return err
		},
		"DeleteSnapshot": func(c agboxv1.SandboxServiceClient, _, _, snapshot string) error {
			_, err := c.DeleteSnapshot(ctx, &agboxv1.DeleteSnapshotRequest{SnapshotId: snapshot})
			return err
		},
		"CreateSandbox from a snapshot": func(c agboxv1.SandboxServiceClient, _, _, snapshot string) error {
			_, err := c.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: "from-1", SnapshotId: snapshot})
			return err
		},
	}
	for name, ask := range asks {
		t.Run(name, func(t *testing.T) {
			said := func(c agboxv1.SandboxServiceClient, prefix string) (message, reason string, metadata map[string]string) {
				err := ask(c, prefix+"-box", prefix+"-exec", prefix+"-snap")
				if status.Code(err) != codes.NotFound {
					t.Fatalf("of %s it is told %v", prefix, err)
				}
				info := status.Convert(err).Details()[0].(*errdetails.ErrorInfo)
				metadata = map[string]string{}
				for key, value := range info.Metadata {
					metadata[key] = strings.ReplaceAll(value, prefix, "X")
				}
				return strings.ReplaceAll(status.Convert(err).Message(), prefix, "X"), info.Reason, metadata
			}
			message, reason, metadata := said(red, "blue")
			noMessage, noReason, noMetadata := said(red, "none")
			if message != noMessage || reason != noReason || !maps.Equal(metadata, noMetadata) {
				t.Errorf("theirs: %s %s %v\nnone:   %s %s %v", message, reason, metadata, noMessage, noReason, noMetadata)
			}
			if own, ownReason, _ := said(w.as(access.Identity{Name: "all"}), "none"); own != message || ownReason != reason {
				t.Errorf("the daemon says %s %s, the gateway %s %s", own, ownReason, message, reason)
			}
		})
	}
	if box, err := blue.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "blue-box"}); err != nil || box.Sandbox.State != agboxv1.SandboxState_SANDBOX_STATE_READY {
		t.Errorf("the other team's sandbox is %v, %v", box, err)
	}
	if !strings.Contains(w.log.String(), `"token":"red","call":"DeleteSandbox","outcome":"NotFound"`) {
		t.Errorf("the record has no line of a refusal:\n%s", &w.log)
	}
}

// TestListsAreOnesOwn: what tells of many tells of the token's own.
func TestListsAreOnesOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	red, blue := w.as(team("red")), w.as(team("blue"))
	watch, err := red.WatchSandboxes(ctx, &agboxv1.WatchSandboxesRequest{})
	if err == nil {
		_, err = watch.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	create(t, blue, "blue-box")
	start(t, blue, "blue-box", "blue-exec")
	create(t, red, "red-box")
	start(t, red, "red-box", "red-exec")
	if event, err := watch.Recv(); err != nil || event.SandboxId != "red-box" {
		t.Errorf("the watch tells of %v, %v", event, err)
	}
	boxes, err := red.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{})
	if err != nil || len(boxes.Sandboxes) != 1 || boxes.Sandboxes[0].SandboxId != "red-box" || boxes.Sandboxes[0].Labels["team"] != "red" {
		t.Errorf("sandboxes: %v, %v", boxes, err)
	}
	execs, err := red.ListExecs(ctx, &agboxv1.ListExecsRequest{})
	if err != nil || len(execs.Execs) != 1 || execs.Execs[0].ExecId != "red-exec" || execs.Execs[0].StdoutLogPath != "" {
		t.Errorf("execs: %v, %v", execs, err)
	}
	active, err := red.ListActiveExecs(ctx, &agboxv1.ListActiveExecsRequest{})
	if err != nil || len(active.Execs) != 1 || active.Execs[0].ExecId != "red-exec" {
		t.Errorf("active execs: %v, %v", active, err)
	}
	if _, err := red.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{LabelSelector: map[string]string{"team": "blue"}}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("another team's label: %v", err)
	}
	if _, err := red.DeleteSandboxes(ctx, &agboxv1.DeleteSandboxesRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a deletion of all: %v", err)
	}
	deleted, err := red.DeleteSandboxes(ctx, &agboxv1.DeleteSandboxesRequest{LabelSelector: map[string]string{"team": "red"}})
	if err != nil || deleted.DeletedCount != 1 {
		t.Errorf("deleted: %v, %v", deleted, err)
	}
	only := w.as(access.ForSandbox("blue-box"))
	if _, err := only.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "blue-box"}); err != nil {
		t.Errorf("its own sandbox: %v", err)
	}
	if _, err := only.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: "red-box"}); status.Code(err) != codes.NotFound {
		t.Errorf("another sandbox: %v", err)
	}
	if _, err := only.ListSandboxes(ctx, &agboxv1.ListSandboxesRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a list for one sandbox's holder: %v", err)
	}
}

// TestNothingOfTheHost: what reaches for the host needs a grant, in whichever way it is asked for.
func TestNothingOfTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	specs := map[access.Grant][]*agboxv1.CreateSpec{
		access.GrantMounts: {{Mounts: []*agboxv1.MountSpec{{Source: dir, Target: "/host"}}}, {Copies: []*agboxv1.CopySpec{{Source: dir, Target: "/host"}}},
			{BuiltinTools: []string{"npm"}}},
		access.GrantPorts: {{Ports: []*agboxv1.PortSpec{{ContainerPort: 80}}}},
		access.GrantGPUs:  {{Gpus: "all"}},
		access.GrantCapabilities: {{CapAdd: []string{"IPC_LOCK"}},
			{RequiredServices: []*agboxv1.ServiceSpec{{Name: "db", Image: "image", CapAdd: []string{"IPC_LOCK"}}}}},
		access.GrantNetwork: {{Network: &agboxv1.NetworkSpec{Mode: "internet", Private: true}},
			{Network: &agboxv1.NetworkSpec{Mode: "allow", Allow: []*agboxv1.NetworkDestination{{Cidr: "192.168.1.1"}}}}},
		access.GrantRuntime:  {{Runtime: "runsc"}},
		access.GrantOperator: {{Image: "agbox-snapshot:other.0011"}, {Image: "sha256:00ff"}, {Image: "00ff"}, {Image: "docker.io/library/agbox-snapshot:x"}},
	}
	granted := team("granted")
	granted.Grants = access.Grants
	refused := 0
	for grant, specs := range specs {
		for _, spec := range specs {
			if spec.Image == "" {
				spec.Image = "image"
			}
			_, err := w.as(team("red")).CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec})
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("without %s, %v: %v", grant, spec, err)
			}
			refused++
			if _, err := w.as(granted).CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{CreateSpec: spec}); status.Code(err) == codes.PermissionDenied {
				t.Errorf("with %s, %v: %v", grant, spec, err)
			}
		}
	}
	_, err := w.as(team("red")).CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{ConfigYaml: []byte("image: image\nmounts: [{source: " + dir + ", target: /host}]\n")})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("a mount in a document: %v", err)
	}
	ctx, red := t.Context(), w.as(team("red"))
	_, info := red.Info(ctx, &agboxv1.InfoRequest{})
	_, doctor := red.Doctor(ctx, &agboxv1.DoctorRequest{})
	_, prune := red.Prune(ctx, &agboxv1.PruneRequest{})
	_, backup := red.Backup(ctx, &agboxv1.BackupRequest{})
	for name, err := range map[string]error{"info": info, "doctor": doctor, "prune": prune, "backup": backup} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	method := "/agbox.v1.SandboxService/Nonsense"
	if err := w.access.Conn(granted).Invoke(ctx, method, &agboxv1.PingRequest{}, &agboxv1.PingResponse{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a call without a rule: %v", err)
	}
}

// TestRate: who calls too often is told when to try again, and others are not touched.
func TestRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := team("red")
	id.Rate = 1.0 / 3600
	if _, err := w.as(id).Ping(t.Context(), &agboxv1.PingRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err := w.as(id).Ping(t.Context(), &agboxv1.PingRequest{})
	var retry *errdetails.RetryInfo
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			retry = info
		}
	}
	if status.Code(err) != codes.ResourceExhausted || retry.GetRetryDelay().AsDuration() < time.Minute {
		t.Errorf("the second call: %v, %v", err, retry)
	}
	if _, err := w.as(team("blue")).Ping(t.Context(), &agboxv1.PingRequest{}); err != nil {
		t.Errorf("another token: %v", err)
	}
}

// TestTokens: what is kept is no token, for its user alone, and a change counts at once in every process.
func TestTokens(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	tokens, err := access.OpenTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := tokens.Add(access.Token{Name: "ci", Labels: map[string]string{"team": "ci"}, Grants: []access.Grant{access.GrantGPUs}})
	if err != nil || len(secret) != 44 || !strings.HasPrefix(secret, "e2b_") {
		t.Fatalf("%q, %v", secret, err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "tokens.json"))
	if info, statErr := os.Stat(filepath.Join(dir, "tokens.json")); err != nil || statErr != nil || info.Mode().Perm() != 0o600 || strings.Contains(string(text), secret[4:]) {
		t.Errorf("kept: %s, %v, %v", text, info.Mode(), err)
	}
	other, err := access.OpenTokens(dir)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := access.Identify(other, secret); err != nil || id.Name != "ci" || id.Labels["team"] != "ci" || !id.May(access.GrantGPUs) || id.May(access.GrantPorts) {
		t.Errorf("it is %+v, %v", id, err)
	}
	if _, err := tokens.Add(access.Token{Name: "ci"}); !errors.Is(err, access.ErrTokenTaken) {
		t.Errorf("the same name again: %v", err)
	}
	past, err := tokens.Add(access.Token{Name: "past", Expires: time.Now().Add(-time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := access.Identify(other, past); !errors.Is(err, access.ErrToken) {
		t.Errorf("an expired token: %v", err)
	}
	if err := tokens.Revoke("ci"); err != nil {
		t.Fatal(err)
	}
	if _, err := access.Identify(other, secret); !errors.Is(err, access.ErrToken) {
		t.Errorf("a revoked token: %v", err)
	}
	if err := tokens.Revoke("ci"); !errors.Is(err, access.ErrNoSuch) {
		t.Errorf("again: %v", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := access.OpenTokens(dir); !errors.Is(err, access.ErrState) {
		t.Errorf("a directory for all: %v", err)
	}
}
