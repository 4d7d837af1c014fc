package main

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// scribe is a daemon that keeps what it was asked for and refuses it.
type scribe struct {
	agboxv1.UnimplementedSandboxServiceServer
	asked proto.Message
	// accept, where it is not nil, answers CreateExec.
	accept func() (*agboxv1.CreateExecResponse, error)
}

var errRefused = status.Error(codes.InvalidArgument, "refused")

func (s *scribe) CreateSandbox(_ context.Context, req *agboxv1.CreateSandboxRequest) (*agboxv1.CreateSandboxResponse, error) {
	s.asked = req
	return nil, errRefused
}

func (s *scribe) CreateExec(_ context.Context, req *agboxv1.CreateExecRequest) (*agboxv1.CreateExecResponse, error) {
	s.asked = req
	if s.accept != nil {
		return s.accept()
	}
	return nil, errRefused
}

func (s *scribe) CancelExec(_ context.Context, req *agboxv1.CancelExecRequest) (*agboxv1.AcceptedResponse, error) {
	s.asked = req
	return &agboxv1.AcceptedResponse{Accepted: true}, nil
}

// startScribe serves a scribe where agbox looks for the daemon.
func startScribe(t *testing.T) *scribe {
	t.Helper()
	dir, err := os.MkdirTemp("", "agbox") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	if err := os.Mkdir(filepath.Join(dir, "agbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "agbox", "agboxd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server, s := grpc.NewServer(), &scribe{}
	agboxv1.RegisterSandboxServiceServer(server, s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return s
}

func TestRequests(t *testing.T) {
	tests := []struct{ line, want string }{
		{"create x", `create_spec {image: "x"}`},
		{"create --config - -- serve --image y -p 1", `create_spec {command: "serve" command: "--image" command: "y" command: "-p" command: "1"} config_yaml: "image: y"`},
		{"create x --user 1000:1000 --workdir /srv --keep-on-command-end -- serve", `create_spec {image: "x" user: "1000:1000" working_dir: "/srv" on_command_end: "keep" command: "serve"}`},
		{"create --image x -p 80 -p 8080:80 --publish 127.0.0.2:53:53/udp -p 5-6:7-8", `create_spec {image: "x"
			ports {container_port: 80 protocol: "tcp"} ports {container_port: 80 host_port: 8080 protocol: "tcp"}
			ports {container_port: 53 host_port: 53 host_ip: "127.0.0.2" protocol: "udp"}
			ports {container_port: 7 host_port: 5 protocol: "tcp"} ports {container_port: 8 host_port: 6 protocol: "tcp"}}`},
		{"create x --cpus 0.5 --memory 512m --pids 9 --disk 1.5GiB --shm-size 4096 --gpus all",
			`create_spec {image: "x" cpu_limit: 0.5 memory_limit: 536870912 pids_limit: 9 disk_limit: 1610612736 shm_size: 4096 gpus: "all"}`},
		{"create x --tmpfs /tmp --tmpfs /var/tmp:64k --read-only --pull never", `create_spec {image: "x" tmpfs {target: "/tmp"}
			tmpfs {target: "/var/tmp" size: 65536} read_only_root: true pull_policy: "never"}`},
		{"create x --network none", `create_spec {image: "x" network {mode: "none"}}`},
		{"create x --allow 192.0.2.0/24 --allow 192.0.2.7:80,443", `create_spec {image: "x" network {mode: "allow"
			allow {cidr: "192.0.2.0/24"} allow {cidr: "192.0.2.7" ports: 80 ports: 443}}}`},
		{"create x --network-private", `create_spec {image: "x" network {mode: "internet" private: true}}`},
		{"create x --allow 0.0.0.0/0 --network-private", `create_spec {image: "x" network {mode: "allow" allow {cidr: "0.0.0.0/0"} private: true}}`},
		{"create x --hostname box --add-host db:192.0.2.7 --add-host six:2001:db8::1", `create_spec {image: "x" hostname: "box"
			extra_hosts {key: "db" value: "192.0.2.7"} extra_hosts {key: "six" value: "2001:db8::1"}}`},
		{"create x --cap-add NET_RAW --cap-add KILL --allow-new-privileges", `create_spec {image: "x" cap_add: "NET_RAW" cap_add: "KILL" allow_new_privileges: true}`},
		{"create x --id box1 --idle-ttl 0 --env A=b --label c=d --tool git", `sandbox_id: "box1" create_spec {image: "x" idle_ttl {}
			envs {key: "A" value: "b"} labels {key: "c" value: "d"} builtin_tools: "git"}`},
		{"create x --mount /a:/b:cow --tool npm:rw", `create_spec {image: "x" mounts {source: "/a" target: "/b" mode: "cow"} builtin_tools: "npm:rw"}`},
		{"create x --mount /a:/b:rw --copy /c:/d --copy /e:/f:7:8 --idle-ttl 1m", `create_spec {image: "x" idle_ttl {seconds: 60}
			mounts {source: "/a" target: "/b" writable: true} copies {source: "/c" target: "/d"} copies {source: "/e" target: "/f" owner: "7:8"}}`},
		{"exec box1 --user www-data:adm --cwd /srv -- id -u", `sandbox_id: "box1" user: "www-data:adm" cwd: "/srv" command: "id" command: "-u"`},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			s := startScribe(t)
			args := strings.Fields("sandbox " + tt.line)
			if code := run(args, stdio{in: strings.NewReader("image: y"), out: io.Discard, err: io.Discard}); code == 0 || code == exitUsage {
				t.Fatalf("code %d", code)
			}
			var want proto.Message = &agboxv1.CreateSandboxRequest{}
			if strings.HasPrefix(tt.line, "exec") {
				want = &agboxv1.CreateExecRequest{}
			}
			if err := prototext.Unmarshal([]byte(tt.want), want); err != nil {
				t.Fatal(err)
			}
			if s.asked == nil || !proto.Equal(s.asked, want) {
				t.Errorf("got  %v\nwant %v", s.asked, want)
			}
		})
	}
}
