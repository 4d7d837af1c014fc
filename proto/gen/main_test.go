package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestGeneratedCodeIsCurrent fails when a .proto was changed and `make proto` not run.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	for _, tree := range trees {
		out, in := t.TempDir(), filepath.Join("..", "..", tree.folder)
		if err := tree.generate(in, out); err != nil {
			t.Fatal(err)
		}
		seen := 0
		err := filepath.WalkDir(out, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			seen++
			want, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(out, path)
			if err != nil {
				return err
			}
			if got, err := os.ReadFile(filepath.Join(in, name)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not what its .proto says, %v: run make proto", name, err)
			}
			return nil
		})
		if err != nil || seen == 0 {
			t.Errorf("%d files of %s: %v", seen, tree.folder, err)
		}
	}
}
