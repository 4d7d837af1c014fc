package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

func (s *scribe) CaptureSandbox(req *agboxv1.SnapshotSandboxRequest, stream grpc.ServerStreamingServer[agboxv1.SnapshotProgress]) error {
	s.asked = req
	if err := stream.Send(&agboxv1.SnapshotProgress{Stage: "reading", SizeBytes: 5}); err != nil {
		return err
	}
	return stream.Send(&agboxv1.SnapshotProgress{Stage: "made", Snapshot: &agboxv1.Snapshot{SnapshotId: "made"}})
}

func (s *scribe) ListSnapshots(_ context.Context, req *agboxv1.ListSnapshotsRequest) (*agboxv1.ListSnapshotsResponse, error) {
	s.asked = req
	at := &timestamppb.Timestamp{Seconds: 1767323045}
	return &agboxv1.ListSnapshotsResponse{Snapshots: []*agboxv1.Snapshot{
		{SnapshotId: "two", SandboxId: "box-1", SizeBytes: 2 << 20, CreatedAt: at, Fork: true},
		{SnapshotId: "one", SandboxId: "box-1", SizeBytes: 1 << 20, CreatedAt: at, Labels: map[string]string{"a": "b"}},
	}}, nil
}

func (s *scribe) DeleteSnapshot(_ context.Context, req *agboxv1.DeleteSnapshotRequest) (*agboxv1.DeleteSnapshotResponse, error) {
	s.asked = req
	if req.SnapshotId == "bad" {
		return nil, errRefused
	}
	return &agboxv1.DeleteSnapshotResponse{}, nil
}

func (s *scribe) ForkSandbox(_ context.Context, req *agboxv1.ForkSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	s.asked = req
	return &agboxv1.CreateSandboxResponse{Sandbox: &agboxv1.SandboxHandle{SandboxId: "forked"}}, nil
}

func TestSnapshotCommands(t *testing.T) {
	made := timeText(time.Unix(1767323045, 0))
	for _, tt := range []struct {
		line string
		code int
		want string
		as   proto.Message
		out  string
	}{
		{"snapshot create box-1", 0, `sandbox_id: "box-1"`, &agboxv1.SnapshotSandboxRequest{}, "made\n"},
		{"snapshot create box-1 --id kept --label a=b", 0, `sandbox_id: "box-1" snapshot_id: "kept" labels {key: "a" value: "b"}`, &agboxv1.SnapshotSandboxRequest{}, "made\n"},
		{"snapshot create", exitUsage, "", nil, ""},
		{"snapshot ls --sandbox box-1 --label a=b", 0, `sandbox_id: "box-1" label_selector {key: "a" value: "b"}`, &agboxv1.ListSnapshotsRequest{}, "" +
			"ID   SANDBOX  SIZE  CREATED              LABELS\n" +
			"two  box-1    2MiB  " + made + "  (of a fork)\n" +
			"one  box-1    1MiB  " + made + "  a=b\n"},
		{"snapshot rm one bad last", exitError, `snapshot_id: "last"`, &agboxv1.DeleteSnapshotRequest{}, ""},
		{"snapshot rm one", 0, `snapshot_id: "one"`, &agboxv1.DeleteSnapshotRequest{}, ""},
		{"snapshot rm", exitUsage, "", nil, ""},
		{"sandbox fork box-1 --no-wait", 0, `sandbox_id: "box-1" create_spec {}`, &agboxv1.ForkSandboxRequest{}, "forked\n"},
		{"sandbox fork box-1 --id fork-1 --env A=b --label c=d --no-wait", 0,
			`sandbox_id: "box-1" fork_id: "fork-1" create_spec {envs {key: "A" value: "b"} labels {key: "c" value: "d"}}`, &agboxv1.ForkSandboxRequest{}, "forked\n"},
		{"sandbox create --snapshot kept --env A=b", exitError, `snapshot_id: "kept" create_spec {envs {key: "A" value: "b"}}`, &agboxv1.CreateSandboxRequest{}, ""},
	} {
		t.Run(tt.line, func(t *testing.T) {
			s := startScribe(t)
			var out strings.Builder
			if code := run(strings.Fields(tt.line), stdio{in: strings.NewReader(""), out: &out, err: io.Discard}); code != tt.code || out.String() != tt.out {
				t.Errorf("code %d and\n%s\nwant %d and\n%s", code, out.String(), tt.code, tt.out)
			}
			if tt.as == nil {
				return
			}
			if err := prototext.Unmarshal([]byte(tt.want), tt.as); err != nil {
				t.Fatal(err)
			}
			if s.asked == nil || !proto.Equal(s.asked, tt.as) {
				t.Errorf("got  %v\nwant %v", s.asked, tt.as)
			}
		})
	}
}
