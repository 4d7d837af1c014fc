package spec

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/hostpath"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestFromSnapshot: what is handed on, what is not, and what the request can change of it.
func TestFromSnapshot(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"shared", ".npm"} {
		if err := os.Mkdir(filepath.Join(home, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	shared := &agboxv1.MountSpec{Source: filepath.Join(home, "shared"), Target: "/shared"}
	accepted := &agboxv1.CreateSpec{
		Image: "original", PullPolicy: "always", Envs: map[string]string{"A": "1", "B": "2"}, Labels: map[string]string{"team": "a"},
		Mounts:       []*agboxv1.MountSpec{shared, {Source: "/moved/away", Target: "/home/agbox/.npm", Writable: true}},
		BuiltinTools: []string{"npm"},
		Copies:       []*agboxv1.CopySpec{{Source: "/gone/meanwhile", Target: "/copied"}},
		Ports:        []*agboxv1.PortSpec{{ContainerPort: 80, HostPort: 8080, HostIp: "127.0.0.1", Protocol: "tcp"}},
		Lease:        &agboxv1.LeaseSpec{Grace: durationpb.New(time.Second)}, Lazy: true,
		PidsLimit: 90, IdleTtl: durationpb.New(time.Hour),
	}
	before := proto.CloneOf(accepted)
	base := FromSnapshot(accepted, "agbox-snapshot:x")
	got, err := ResolveOn(base, &agboxv1.CreateSandboxRequest{ConfigYaml: []byte("{pids_limit: 100, envs: {B: 3}, image: 'agbox-snapshot:x', pull_policy: always}"),
		CreateSpec: &agboxv1.CreateSpec{Envs: map[string]string{"C": "4"}}}, Host{Places: hostpath.Places{Home: home}})
	if err != nil {
		t.Fatal(err)
	}
	want := &agboxv1.CreateSpec{
		Image: "agbox-snapshot:x", PullPolicy: "never", Envs: map[string]string{"A": "1", "B": "3", "C": "4"}, Labels: map[string]string{"team": "a"},
		Mounts: []*agboxv1.MountSpec{shared}, BuiltinTools: []string{"npm"},
		Ports:     []*agboxv1.PortSpec{{ContainerPort: 80, HostIp: "127.0.0.1", Protocol: "tcp"}},
		PidsLimit: 100, IdleTtl: durationpb.New(time.Hour),
	}
	if !proto.Equal(got.Spec, want) {
		t.Errorf("got  %v\nwant %v", got.Spec, want)
	}
	if len(got.Mounts) != 2 || got.Mounts[1].Source != filepath.Join(home, ".npm") || got.Mounts[1].Tool != "npm" {
		t.Errorf("the mounts are %+v", got.Mounts)
	}
	if !proto.Equal(accepted, before) {
		t.Errorf("the first sandbox's spec has become %v", accepted)
	}
	_, err = ResolveOn(base, &agboxv1.CreateSandboxRequest{CreateSpec: &agboxv1.CreateSpec{Image: "other"}}, Host{Places: hostpath.Places{Home: home}})
	if refused, ok := errors.AsType[*Error](err); !ok || refused.Reason != ReasonSnapshotImageConflict {
		t.Errorf("another image is %v", err)
	}
}
