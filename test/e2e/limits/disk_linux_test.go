package limits_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"
	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
	"github.com/agbox-dev/agbox/test/servertest"
)

// diskDir returns an empty directory with a short path, to mount a disk on.
func diskDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startOn runs a daemon that keeps everything on the disk that is mounted there.
func startOn(t *testing.T, disk string) *servertest.Daemon {
	t.Helper()
	dir := filepath.Join(disk, "d")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return servertest.Start(t, servertest.In(dir))
}

// fill leaves no block free, not even within the database: what it does not use is given back to the disk first, as
// by a file system that never writes in place. It returns what gives the space back. Nothing may write meanwhile.
func fill(t *testing.T, d *servertest.Daemon) (free func()) {
	t.Helper()
	database := filepath.Join(d.Dir(), "ids.db")
	file, err := os.OpenFile(database, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, page := range freePages(t, database) {
		if err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, page*4096, 4096); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(d.Dir(), "filler")
	filler, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer filler.Close()
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// inspect shows a copy of a database, which may be in use but not written to.
func inspect(t *testing.T, database string, look func(*bbolt.Tx)) {
	t.Helper()
	content, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, content, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(copied, 0o600, &bbolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bbolt.Tx) error { look(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

func freePages(t *testing.T, database string) (free []int64) {
	t.Helper()
	inspect(t, database, func(tx *bbolt.Tx) {
		for id := 2; ; id++ {
			page, err := tx.Page(id)
			if page == nil || err != nil {
				return
			}
			if page.Type == "free" {
				free = append(free, int64(id))
			}
			id += page.OverflowCount
		}
	})
	return free
}

// gate is an exec that prints a line and exits with 7 once the test opens the gate.
type gate struct {
	execID string
	pipe   *os.File
	pidfd  int
}

// gateDir is where a sandbox finds its gate.
const gateDir = "/gate"

// gated returns a sandbox with such an exec, which runs.
func gated(t *testing.T, d *servertest.Daemon) (id string, g gate) {
	t.Helper()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o666), os.Chmod(fifo, 0o666)); err != nil {
		t.Fatal(err)
	}
	id = d.Create(&agboxv1.CreateSpec{Mounts: []*agboxv1.MountSpec{{Source: dir, Target: gateDir, Writable: true}}})
	g.execID = d.Begin(&agboxv1.CreateExecRequest{SandboxId: id,
		Command: []string{"sh", "-c", "read line <" + gateDir + "/fifo; echo through; exit 7"}}).ExecId
	var err error
	if g.pipe, err = os.OpenFile(fifo, os.O_WRONLY, 0); err != nil { // returns when the exec reads
		t.Fatal(err)
	}
	t.Cleanup(func() { g.pipe.Close() })
	top, err := d.Engine.ContainerTop(t.Context(), "agbox-primary-"+id, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, process := range top.Processes {
		if !strings.Contains(strings.Join(process, " "), gateDir+"/fifo") {
			continue
		}
		pid, err := strconv.Atoi(process[1])
		if err != nil {
			t.Fatal(err)
		}
		if g.pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(g.pidfd) })
		return id, g
	}
	t.Fatalf("the exec is not there: %v", top.Processes)
	return "", gate{}
}

// open returns when the exec's process has ended.
func (g gate) open(t *testing.T) {
	t.Helper()
	if err := g.pipe.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(g.pidfd), Events: unix.POLLIN}}, -1)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

// writesRefused fails the test unless everything that would have to be recorded is refused, with the file's name and
// the way out in the message, while what was recorded can be read.
func writesRefused(t *testing.T, d *servertest.Daemon, id, execID, wayOut string) {
	t.Helper()
	ctx := t.Context()
	for name, request := range map[string]func() error{
		"create": func() error {
			_, err := d.CreateSandbox(ctx, &agboxv1.CreateSandboxRequest{SandboxId: "late-" + id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}})
			return err
		},
		"exec": func() error {
			_, err := d.CreateExec(ctx, &agboxv1.CreateExecRequest{SandboxId: id, ExecId: "late-" + execID, Command: []string{"true"}})
			return err
		},
		"cancel": func() error {
			_, err := d.CancelExec(ctx, &agboxv1.CancelExecRequest{ExecId: execID})
			return err
		},
		"stop": func() error {
			_, err := d.StopSandbox(ctx, &agboxv1.StopSandboxRequest{SandboxId: id})
			return err
		},
		"delete": func() error {
			_, err := d.DeleteSandbox(ctx, &agboxv1.DeleteSandboxRequest{SandboxId: id})
			return err
		},
	} {
		err := request()
		servertest.Refused(t, err, codes.ResourceExhausted, "DISK_FULL", "")
		if failure, ok := errors.AsType[*raw.Error](err); ok {
			for _, want := range []string{filepath.Join(d.Dir(), "ids.db"), wayOut, "nothing was recorded"} {
				if !strings.Contains(failure.Message, want) {
					t.Errorf("%s: the message is %q, without %q", name, failure.Message, want)
				}
			}
		}
	}
	got, err := d.GetSandbox(ctx, &agboxv1.GetSandboxRequest{SandboxId: id})
	if err != nil || got.Sandbox.State != agboxv1.SandboxState_SANDBOX_STATE_READY || got.Sandbox.LastEventSequence != 4 {
		t.Errorf("the sandbox is %v, %v", got, err)
	}
	exec, err := d.GetExec(ctx, &agboxv1.GetExecRequest{ExecId: execID})
	if err != nil || exec.Exec.State != agboxv1.ExecState_EXEC_STATE_RUNNING {
		t.Errorf("the exec is %v, %v", exec, err)
	}
	stream := servertest.Follow(t, d, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id})
	for want := uint64(1); want <= 4; want++ {
		if event := servertest.Next(t, stream); event.Sequence != want {
			t.Errorf("event %d is %v", want, event)
		}
	}
}

// TestDiskFull: what cannot be recorded is refused, what was accepted is carried on, and an exec that ends meanwhile
// is told with its exit code once there is space, by itself, also when the daemon was started anew in between.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for name, restarted := range map[string]bool{"same daemon": false, "daemon restarted meanwhile": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk := diskDir(t)
			servertest.MountTmpfs(t, disk)
			d := startOn(t, disk)
			id, gate := gated(t, d)
			free := fill(t, d)
			writesRefused(t, d, id, gate.execID, "free space")
			gate.open(t)
			writesRefused(t, d, id, gate.execID, "free space")
			if restarted {
				d.Stop()
				d.StartAgain()
				writesRefused(t, d, id, gate.execID, "free space")
			}
			live := servertest.Follow(t, d, &agboxv1.SubscribeSandboxEventsRequest{SandboxId: id, FromSequence: 4})
			free()
			if end := servertest.Next(t, live); end.EventType != agboxv1.EventType_EXEC_FINISHED || end.GetExec().ExecId != gate.execID || end.GetExec().ExitCode != 7 || end.Sequence != 5 {
				t.Errorf("after space was freed comes %v", end)
			}
			servertest.Works(t, d, id)
			if _, err := d.StopSandbox(t.Context(), &agboxv1.StopSandboxRequest{SandboxId: id}); err != nil {
				t.Fatal(err)
			}
			d.Await(id, agboxv1.EventType_SANDBOX_STOPPED)
			// The ids of what was refused are free.
			if _, err := d.CreateSandbox(t.Context(), &agboxv1.CreateSandboxRequest{SandboxId: "late-" + id, CreateSpec: &agboxv1.CreateSpec{Image: d.Image}}); err != nil {
				t.Fatal(err)
			}
			d.Await("late-"+id, agboxv1.EventType_SANDBOX_READY)
			d.Begin(&agboxv1.CreateExecRequest{SandboxId: "late-" + id, ExecId: "late-" + gate.execID, Command: []string{"true"}})
			d.ExecEnd("late-"+id, "late-"+gate.execID)
			d.Delete("late-" + id)
			d.Delete(id)
			inspect(t, filepath.Join(d.Dir(), "ids.db"), func(tx *bbolt.Tx) {
				for err := range tx.Check() {
					t.Errorf("the database: %v", err)
				}
			})
		})
	}
}

// mountImage mounts a file that holds an ext4 file system, and returns its block device.
func mountImage(t *testing.T, image, dir string) (loop string) {
	t.Helper()
	loop = run(t, "losetup", "--find", "--show", image)
	t.Cleanup(func() { run(t, "losetup", "--detach", loop) }) // which happens once nothing is mounted of it
	if err := syscall.Mount(loop, dir, "ext4", 0, "errors=remount-ro"); err != nil {
		servertest.SkipDisk(t, err)
	}
	return loop
}

// TestDiskTurnsReadOnly: as the kernel does with a disk that fails. It takes no writes again until it is mounted
// anew, for which everything that has files open on it has to end; nothing that was accepted is lost by then.
func TestDiskTurnsReadOnly(t *testing.T) {
	t.Parallel()
	dir := diskDir(t)
	image := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 32<<20)); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-F", image)
	loop := mountImage(t, image, dir)
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) }) // whatever is there when the daemon has ended
	d := startOn(t, dir)
	id, gate := gated(t, d)
	if err := os.WriteFile(filepath.Join("/sys/fs/ext4", filepath.Base(loop), "trigger_fs_error"), []byte("1"), 0); err != nil {
		servertest.SkipDisk(t, err)
	}
	writesRefused(t, d, id, gate.execID, "make its file system writable")
	gate.open(t)
	writesRefused(t, d, id, gate.execID, "make its file system writable")

	d.Stop()
	if err := d.Engine.ContainerRemove(t.Context(), "agbox-primary-"+id, container.RemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	// A copy, because nothing tells when the kernel has let go of the failed one, which it would mount as it is.
	run(t, "cp", "--sparse=always", image, image+".copy")
	mountImage(t, image+".copy", dir)
	d.StartAgain()
	events := d.Await(id, agboxv1.EventType_SANDBOX_FAILED)
	for i, event := range events {
		if event.Sequence != uint64(i+1) {
			t.Errorf("event %d is %v", i+1, event)
		}
	}
	exec, err := d.GetExec(t.Context(), &agboxv1.GetExecRequest{ExecId: gate.execID})
	if err != nil || exec.Exec.State != agboxv1.ExecState_EXEC_STATE_FAILED || exec.Exec.Error == "" {
		t.Errorf("the exec whose result nobody knows any more is %v, %v", exec, err)
	}
	servertest.Works(t, d, d.Create(&agboxv1.CreateSpec{}))
}

func run(t *testing.T, program string, arguments ...string) string {
	t.Helper()
	output, err := exec.Command(program, arguments...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		servertest.SkipDisk(t, err)
	}
	if err != nil {
		t.Fatalf("%s %v: %v: %s", program, arguments, err, output)
	}
	return string(bytes.TrimSpace(output))
}
