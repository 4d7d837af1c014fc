package sdk

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWatch(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	w := newWatch(path, other)
	defer w.close()
	for _, path := range []string{path, other} {
		<-w.wakes[path]
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 3 {
		<-w.wakes[path] // its appearance, then each write
		if _, err := file.WriteString("x"); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-w.wakes[other]:
		t.Error("the other file woke")
	default:
	}
}

// A directory that is not there cannot be watched; it is looked at again and again.
func TestWatchWithoutNotices(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	path := filepath.Join(dir, "a")
	w := newWatch(path)
	defer w.close()
	<-w.wakes[path]
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for text := "x"; len(text) < 4; text += "x" {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		<-w.wakes[path]
	}
}
