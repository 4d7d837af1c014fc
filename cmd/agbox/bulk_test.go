package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// recorder is a daemon that keeps what it was asked for.
type recorder struct {
	agboxv1.UnimplementedSandboxServiceServer
	asked []proto.Message
}

func (r *recorder) ListSandboxes(_ context.Context, req *agboxv1.ListSandboxesRequest) (*agboxv1.ListSandboxesResponse, error) {
	r.asked = append(r.asked, req)
	return &agboxv1.ListSandboxesResponse{}, nil
}

func (r *recorder) DeleteSandboxes(_ context.Context, req *agboxv1.DeleteSandboxesRequest) (*agboxv1.DeleteSandboxesResponse, error) {
	r.asked = append(r.asked, req)
	return &agboxv1.DeleteSandboxesResponse{}, nil
}

func (r *recorder) StopSandboxes(_ context.Context, req *agboxv1.StopSandboxesRequest) (*agboxv1.StopSandboxesResponse, error) {
	r.asked = append(r.asked, req)
	return &agboxv1.StopSandboxesResponse{}, nil
}

func (r *recorder) Prune(_ context.Context, req *agboxv1.PruneRequest) (*agboxv1.PruneResponse, error) {
	r.asked = append(r.asked, req)
	return &agboxv1.PruneResponse{}, nil
}

// TestSelectors: what the flags become on the wire.
func TestSelectors(t *testing.T) {
	dir, err := os.MkdirTemp("", "agbox") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if err := os.Mkdir(filepath.Join(dir, "agbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "agbox", "agboxd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	var r recorder
	server := grpc.NewServer()
	agboxv1.RegisterSandboxServiceServer(server, &r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { server.Stop(); <-served }()
	for line, want := range map[string]string{
		"sandbox list": `include_deleted: false`,
		"sandbox list --all -l a=b --label c=d --state stopped": `include_deleted: true label_selector {key: "a" value: "b"} label_selector {key: "c" value: "d"} states: SANDBOX_STATE_STOPPED`,
		"sandbox rm -l a=b --state failed --state READY":        `label_selector {key: "a" value: "b"} states: SANDBOX_STATE_FAILED states: SANDBOX_STATE_READY`,
		"sandbox stop -l a=b --no-wait --force":                 `label_selector {key: "a" value: "b"} force: true`,
		"sandbox stop -l a=b --no-wait --grace 2s":              `label_selector {key: "a" value: "b"} grace {seconds: 2}`,
		"prune": `older_than {}`,
		"prune -l a=b --state paused --older-than 1h --snapshots --dry-run": `label_selector {key: "a" value: "b"} states: SANDBOX_STATE_PAUSED older_than {seconds: 3600} snapshots: true dry_run: true`,
	} {
		r.asked = nil
		var errors bytes.Buffer
		if code := run(strings.Fields(line), stdio{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &errors}); code != 0 || len(r.asked) != 1 {
			t.Errorf("%s: exit code %d after %v: %s", line, code, r.asked, &errors)
			continue
		}
		expected := r.asked[0].ProtoReflect().New().Interface()
		if err := prototext.Unmarshal([]byte(want), expected); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(r.asked[0], expected) {
			t.Errorf("%s asks for %v, want %v", line, r.asked[0], expected)
		}
	}
}
