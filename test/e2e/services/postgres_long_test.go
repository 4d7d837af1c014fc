//go:build long

package services_test

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	cerrdefs "github.com/containerd/errdefs"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// postgresImage makes the image of the example's database, once for each recipe.
func postgresImage(t *testing.T) string {
	t.Helper()
	recipe := exec.CommandContext(t.Context(), "../../../.ci/image", "postgres")
	recipe.Stderr = t.Output()
	ref, err := recipe.Output()
	if err != nil {
		t.Fatalf(".ci/image postgres: %v: what is missing is said above", err)
	}
	return strings.TrimSpace(string(ref))
}

// TestLongPostgres is the life of the example docs/demo/postgres.yaml, to the end of its database.
func TestLongPostgres(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	example, err := os.ReadFile("../../../docs/demo/postgres.yaml")
	if err != nil {
		t.Fatal(err)
	}
	example = bytes.ReplaceAll(example, []byte("image: agbox-demo/postgres"), []byte("image: "+postgresImage(t)))
	created, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{ConfigYaml: example})
	if err != nil {
		t.Fatal(err)
	}
	id := created.Sandbox.SandboxId
	if told := serviceEvents(d.Await(id, agboxv1.EventType_SANDBOX_READY)); !slices.Equal(told, []string{"READY db"}) {
		t.Errorf("before READY it was told %v", told)
	}
	sql := func(statement, want string) {
		t.Helper()
		if _, stdout, stderr := d.Exec(id, "psql", "-Atqc", statement); stdout != want {
			t.Errorf("%s: %q, %s; want %q", statement, stdout, stderr, want)
		}
	}
	sql("insert into notes values ('kept') returning text", "kept\n")

	if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	stopped := d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
	db := servertest.ServiceContainers(t, d, id)["db"]
	found, err := d.Engine.ContainerInspect(t.Context(), db.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.ResumeSandbox(t.Context(), &agboxv1.ResumeSandboxRequest{SandboxId: id}); err != nil {
		t.Fatal(err)
	}
	resumed := d.AwaitMatch(id, stopped[len(stopped)-1].Sequence, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_READY })
	sql("select text from notes", "kept\n")

	killed := make(chan error, 1)
	began := time.Now()
	go func() { killed <- d.Engine.ContainerKill(t.Context(), db.ID, "KILL") }()
	events := d.AwaitMatch(id, resumed[len(resumed)-1].Sequence, func(e *agboxv1.SandboxEvent) bool { return e.EventType == agboxv1.EventType_SANDBOX_FAILED })
	t.Logf("from the kill to FAILED: %s", time.Since(began))
	if err := <-killed; err != nil {
		t.Error(err)
	}
	const message = "the required service db ended with exit code 137 (signal 9, killed)"
	if failed := events[len(events)-1].GetSandboxPhase(); failed.ErrorCode != "SERVICE_NOT_RUNNING" || failed.ErrorMessage != message {
		t.Errorf("FAILED says %v", failed)
	}

	d.Delete(id)
	for _, m := range found.Mounts {
		if _, err := d.Engine.VolumeInspect(t.Context(), m.Name); !cerrdefs.IsNotFound(err) {
			t.Errorf("the delete leaves the volume at %s: %v", m.Destination, err)
		}
	}
	if len(found.Mounts) == 0 {
		t.Error("the image declares no volume")
	}
}
