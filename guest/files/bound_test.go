package files_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/guest/files"
)

// TestBound: a stream within its bounds goes as it is, padding included, and what is no archive too.
func TestBound(t *testing.T) {
	whole, err := io.ReadAll(archive(t, tar.Header{Name: "d/", Typeflag: tar.TypeDir}, tar.Header{Name: "d/large", Size: 100_000}, tar.Header{Name: "last", Size: 3}))
	if err != nil {
		t.Fatal(err)
	}
	for name, stream := range map[string][]byte{
		"archive": whole, "padded": append(bytes.Clone(whole), make([]byte, 20<<10)...), "cut off": whole[:50_000], "no archive": []byte(strings.Repeat("x", 5000)), "empty": nil,
	} {
		got, err := io.ReadAll(files.Bound(bytes.NewReader(stream), files.Bounds{Bytes: 100_003, Directory: "/"}))
		if err != nil || !bytes.Equal(got, stream) {
			t.Errorf("%s: %d of %d bytes, %v", name, len(got), len(stream), err)
		}
	}
}

// TestBoundRefuses what does not fit by what its header says, before a byte of it.
func TestBoundRefuses(t *testing.T) {
	hole := new(bytes.Buffer)
	if err := tar.NewWriter(hole).WriteHeader(&tar.Header{Name: "hole", Size: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(files.Bound(io.MultiReader(hole, neverEnding{}), files.Bounds{Bytes: 1 << 30, Why: "ask the operator"})); !errors.Is(err, files.ErrTooLarge) || len(got) > 0 || !strings.Contains(err.Error(), "ask the operator") {
		t.Errorf("a hole of a terabyte: %d bytes, %v", len(got), err)
	}
	deep := archive(t, tar.Header{Name: strings.Repeat("a/", 1000), Typeflag: tar.TypeDir, Format: tar.FormatPAX})
	if _, err := io.ReadAll(files.Bound(deep, files.Bounds{Directory: "/" + strings.Repeat("b", 2000)})); !errors.Is(err, files.ErrTooDeep) {
		t.Errorf("a tree that is too deep: %v", err)
	}
	many := archive(t, tar.Header{Name: "a", Size: 600}, tar.Header{Name: "b", Size: 600})
	if _, err := io.ReadAll(files.Bound(many, files.Bounds{Bytes: 1000})); !errors.Is(err, files.ErrTooLarge) {
		t.Errorf("two files that are too large together: %v", err)
	}
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) { clear(p); return len(p), nil }
