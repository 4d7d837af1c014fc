package exec_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"sync"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk"
	"github.com/agbox-dev/agbox/test/servertest"
)

// randomBytes is the same for the same seed.
func randomBytes(seed byte, n int) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), int64(n))
}

func sumOf(t *testing.T, r io.Reader) [sha256.Size]byte {
	t.Helper()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		t.Fatal(err)
	}
	return [sha256.Size]byte(sum.Sum(nil))
}

func sdkClient(t *testing.T, d *servertest.Daemon, opts ...sdk.Option) *sdk.Client {
	t.Helper()
	client, err := sdk.New(append(opts, sdk.WithSocket(d.Socket()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// feedIn puts all of r into the command's input and closes that.
func feedIn(t *testing.T, a *sdk.Attachment, r io.Reader) {
	if _, err := io.CopyBuffer(struct{ io.Writer }{a}, r, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	} else if err := a.CloseStdin(); err != nil {
		t.Error(err)
	}
}

// TestAttachMuch: what goes in comes out, and readers at different offsets see the same.
func TestAttachMuch(t *testing.T) {
	t.Parallel()
	attachMuch(t, 8<<20)
}

func attachMuch(t *testing.T, size int) {
	t.Helper()
	d := servertest.Start(t)
	id := d.Create(&agboxv1.CreateSpec{})
	client := sdkClient(t, d)
	exec, err := client.CreateExec(t.Context(), id, []string{"cat"}, sdk.WithStdin())
	if err != nil {
		t.Fatal(err)
	}
	idle := attachRaw(t, d, startOf(&agboxv1.AttachExecStart{ExecId: exec.ID, StdoutOffset: new(uint64(0))}))
	offsets := []uint64{0, 1_234_567, uint64(size) - 1}
	sums := make([]hashed, len(offsets))
	var group sync.WaitGroup
	for i, from := range offsets {
		reader, err := client.AttachExec(t.Context(), exec.ID, sdk.WithOutputFrom(from, 0), sdk.WithOutput(&sums[i], nil))
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() {
			if _, err := reader.Wait(); err != nil {
				t.Error(err)
			}
			if stdout, _ := reader.Offsets(); stdout != uint64(size) {
				t.Errorf("a reader has come to %d", stdout)
			}
		})
	}
	writer, err := client.AttachExec(t.Context(), exec.ID)
	if err != nil {
		t.Fatal(err)
	}
	feedIn(t, writer, randomBytes(1, size))
	if end, err := writer.Wait(); err != nil || end.ExitCode != 0 {
		t.Errorf("ended as %+v, %v", end, err)
	}
	group.Wait()
	for i, from := range offsets {
		all := randomBytes(1, size)
		if _, err := io.CopyN(io.Discard, all, int64(from)); err != nil {
			t.Fatal(err)
		}
		if want := sumOf(t, all); sums[i].sum(t) != want || sums[i].n != int64(size)-int64(from) {
			t.Errorf("from %d: %d other bytes came", from, sums[i].n)
		}
	}
	if got, err := drainAttach(idle, nil); err != nil || got.stdout.Len() != size {
		t.Errorf("who did not read until now gets %d bytes, %v", got.stdout.Len(), err)
	}
}

// hashed is a writer that keeps what was written, to be summed up.
type hashed struct {
	pieces [][]byte
	n      int64
	begun  chan struct{} // holds one once there is something; may be nil
}

func (h *hashed) Write(p []byte) (int, error) {
	h.pieces = append(h.pieces, bytes.Clone(p))
	h.n += int64(len(p))
	select {
	case h.begun <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (h *hashed) sum(t *testing.T) [sha256.Size]byte {
	var all []io.Reader
	for _, piece := range h.pieces {
		all = append(all, bytes.NewReader(piece))
	}
	return sumOf(t, io.MultiReader(all...))
}
