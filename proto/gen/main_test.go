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
	for _, name := range []string{"agbox.pb.go", "agbox_grpc.pb.go"} {
		want, err := os.ReadFile(filepath.Join(out, "agbox", "v1", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join("..", "agbox", "v1", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what agbox.proto says: run make proto", name)
		}
	}
}
