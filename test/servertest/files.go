package servertest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/sdk/raw"
)

// WriteTree makes files below dir, with the directories that they need; a name that ends in / is a directory.
func WriteTree(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Entry is one of a tar stream.
type Entry struct {
	tar.Header
	Content string
}

// File is a regular file for an archive, with an owner and a time that are nobody's.
func File(name, content string, mode int64) Entry {
	return Entry{tar.Header{Name: name, Mode: mode, Size: int64(len(content)), Uid: 4711, Gid: 4712, ModTime: time.Unix(1_700_000_000, 123_000_000), Format: tar.FormatPAX}, content}
}

// Archive is a tar stream of the entries.
func Archive(t *testing.T, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Upload puts a tar stream into dir.
func Upload(t *testing.T, d *Daemon, id, dir string, stream []byte) *agboxv1.UploadFilesResponse {
	t.Helper()
	resp, err := d.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: dir}, bytes.NewReader(stream))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// Uploading is Upload of entries, with an owner, which may be refused.
func Uploading(t *testing.T, c *raw.Client, id, dir, owner string, entries ...Entry) error {
	t.Helper()
	_, err := c.UploadFiles(t.Context(), &agboxv1.UploadFilesStart{SandboxId: id, Path: dir, Owner: owner}, bytes.NewReader(Archive(t, entries...)))
	return err
}

// Download returns the entries of the stream of p, by their names.
func Download(t *testing.T, d *Daemon, id, p string) map[string]Entry {
	t.Helper()
	stream, err := d.DownloadFiles(t.Context(), &agboxv1.DownloadFilesRequest{SandboxId: id, Path: p})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	all := map[string]Entry{}
	for in := tar.NewReader(stream); ; {
		h, err := in.Next()
		if err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(h.Name, "/")] = Entry{*h, string(text)}
	}
}

// ListFiles returns a line for each file.
func ListFiles(t *testing.T, d *Daemon, req *agboxv1.ListFilesRequest) (lines []string, truncated bool) {
	t.Helper()
	resp, err := d.ListFiles(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range resp.Files {
		lines = append(lines, fmt.Sprintf("%s %s %o %d %d:%d %d.%d %s", f.Path, f.Type, f.Mode, f.Size, f.Uid, f.Gid, f.ModifiedAt.GetSeconds(), f.ModifiedAt.GetNanos(), f.LinkTarget))
	}
	return lines, resp.Truncated
}

// Numbers are the lines 1 to n, as seq prints them.
func Numbers(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(strconv.Itoa(i+1) + "\n")
	}
	return text.String()
}

// OpenDirs makes directories that every user of a sandbox may write to, and returns their paths.
func OpenDirs(t *testing.T, names ...string) []string {
	t.Helper()
	top := t.TempDir()
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = filepath.Join(top, name)
		if err := os.MkdirAll(paths[i], 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(paths[i], 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}
