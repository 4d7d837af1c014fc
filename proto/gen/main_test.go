package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestGeneratedCodeIsCurrent fails when agbox.proto was changed and `make proto` not run.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	out := t.TempDir()
	if err := generate("..", out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"v1/agbox.pb.go", "v1/agbox_grpc.pb.go", "journal/v1/journal.pb.go"} {
		want, err := os.ReadFile(filepath.Join(out, "agbox", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", "agbox", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its .proto says: run make proto", name)
		}
	}
}
