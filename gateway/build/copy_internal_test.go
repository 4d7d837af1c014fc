package build

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestCopying: where a COPY step puts what it finds, as a Dockerfile's does, and never elsewhere.
func TestCopying(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ src, dest, found string }{
		{"a.txt", "/b.txt", "b.txt"},
		{"a.txt", "/dir/", "dir/a.txt"},
		{"a.txt", ".", "work/a.txt"},
		{"src", "/app", "app app/b.txt app/deep/c.txt"},
		{"src/", "app", "work/app work/app/b.txt work/app/deep/c.txt"},
		{"src/deep/c.txt", "/x", "x"},
		{"*.txt", "/all", "all/a.txt"},
		{"src/*", "/all", "all/b.txt all/c.txt"},
		{".", "/", "a.txt src src/b.txt src/deep/c.txt"},
		{"none", "/x", ""},
		{"../up.txt", "/x", ""},
	} {
		what, err := newCopying(c.src, c.dest, "/work", "")
		if err != nil {
			t.Fatal(err)
		}
		var packed, rewritten bytes.Buffer
		pack(t, &packed)
		if _, err := what.rewrite(&packed, &rewritten); err != nil {
			t.Fatal(err)
		}
		if found := names(t, &rewritten); found != c.found {
			t.Errorf("COPY %s %s: %s, want %s", c.src, c.dest, found, c.found)
		}
	}
	for _, mode := range []string{"x", "-1", "77777"} {
		if _, err := newCopying("a", "/b", "/", mode); err == nil {
			t.Errorf("the mode %q is accepted", mode)
		}
	}
	what, err := newCopying("a", "/b", "/", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, junk := range []string{"no tar stream, but long enough for a header" + strings.Repeat(".", 512), "\x1f\x8bno gzip"} {
		if _, err := what.rewrite(strings.NewReader(junk), io.Discard); err == nil {
			t.Errorf("%.10q is accepted", junk)
		}
	}
}

func pack(t *testing.T, to io.Writer) {
	t.Helper()
	out := tar.NewWriter(to)
	for _, name := range []string{"a.txt", "src/", "src/b.txt", "src/deep/c.txt", "../up.txt"} {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600}
		if strings.HasSuffix(name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, from io.Reader) string {
	t.Helper()
	var found []string
	for in := tar.NewReader(from); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(found, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, header.Name)
	}
}
