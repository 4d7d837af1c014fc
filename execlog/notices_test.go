package execlog_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/agbox-dev/agbox/execlog"
)

func watch(t *testing.T, n *execlog.Notices, path string) *execlog.Watch {
	t.Helper()
	w, err := n.Watch(path)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func write(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		_, err = file.WriteString(text)
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// await reads until the log holds the text.
func await(t *testing.T, w *execlog.Watch, log *execlog.Log, text string) {
	t.Helper()
	for {
		select {
		case <-w.Grown():
		case <-t.Context().Done():
			t.Fatalf("%q was not met", text)
		}
		size, err := log.Size()
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, size)
		if log.Opened() {
			if _, err := log.Read(data, 0); err != nil {
				t.Fatal(err)
			}
			if err := w.Narrow(); err != nil {
				t.Fatal(err)
			}
		}
		if string(data) == text {
			return
		}
	}
}

// TestGrowth: a file that appears, grows, is narrowed down to, and grows on.
func TestGrowth(t *testing.T) {
	var notices execlog.Notices
	path := filepath.Join(t.TempDir(), "log")
	w, log := watch(t, &notices, path), execlog.New(path)
	defer w.Close()
	defer log.Close()
	await(t, w, log, "")
	text := ""
	for range 3 {
		write(t, path, "line\n")
		text += "line\n"
		await(t, w, log, text)
	}
}

// TestNeighbours: after Narrow what happens beside the file is nobody's business, and closing one watch leaves the
// other that is on the same file.
func TestNeighbours(t *testing.T) {
	var notices execlog.Notices
	dir := t.TempDir()
	path, other := filepath.Join(dir, "log"), filepath.Join(dir, "other")
	write(t, path, "a")
	first, second, log := watch(t, &notices, path), watch(t, &notices, path), execlog.New(path)
	defer second.Close()
	defer log.Close()
	await(t, first, log, "a")
	await(t, second, log, "a")
	first.Close()
	<-second.Grown() // what Narrow itself may have hidden

	beside := watch(t, &notices, other)
	defer beside.Close()
	<-beside.Grown()
	write(t, other, "b")
	<-beside.Grown()
	select {
	case <-second.Grown():
		t.Error("a neighbour woke it")
	default:
	}
	write(t, path, "c")
	await(t, second, log, "ac")
}

func TestNoDirectory(t *testing.T) {
	var notices execlog.Notices
	if _, err := notices.Watch(filepath.Join(t.TempDir(), "none", "log")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
