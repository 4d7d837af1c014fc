package files_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/files"
	"github.com/agbox-dev/agbox/guest/files/record"
)

func TestClean(t *testing.T) {
	for p, want := range map[string]string{
		"a": "/work/a", ".": "/work", "../../../x": "/x", "/a/../../b/": "/b", "/": "/", "a//b": "/work/a/b",
	} {
		if got, err := files.Clean("/work", p); got != want || err != nil {
			t.Errorf("%q is %q, %v; want %q", p, got, err, want)
		}
	}
	for _, p := range []string{"", "a\x00", strings.Repeat("x", 4096)} {
		if _, err := files.Clean("/work", p); !errors.Is(err, files.ErrPath) {
			t.Errorf("%.10q: %v", p, err)
		}
	}
}

func TestAccounts(t *testing.T) {
	accounts := files.Accounts{Passwd: "root:x:0:0::/root:\nbad line\nagbox:x:1000:1001::/:\nfive:x:5:6", Group: "wheel:x:10:agbox\n"}
	for spec, want := range map[string]files.Account{
		"root": {}, "agbox": {1000, 1001}, "5": {5, 6}, "5:0": {5, 0}, "77": {77, 0}, "agbox:wheel": {1000, 10}, "77:88": {77, 88}, "agbox:": {1000, 1001},
	} {
		if got, err := accounts.Lookup(spec); got != want || err != nil {
			t.Errorf("%q is %v, %v; want %v", spec, got, err, want)
		}
	}
	for _, spec := range []string{"nobody", "5:nobody", "-1", "4294967296"} {
		if got, err := accounts.Lookup(spec); !errors.Is(err, files.ErrOwner) {
			t.Errorf("%q is %v, %v", spec, got, err)
		}
	}
	empty := files.Accounts{}
	for _, c := range []struct {
		accounts    files.Accounts
		spec, image string
		want        files.Account
	}{
		{accounts, "", "5", files.Account{UID: 1000, GID: 1001}}, {accounts, "five", "", files.Account{UID: 5, GID: 6}},
		{empty, "", "", files.Account{}}, {empty, "", "1234", files.Account{UID: 1234}}, {empty, "root", "9", files.Account{}},
	} {
		if got, err := c.accounts.Rule(c.spec, c.image); got != c.want || err != nil {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
}

// engine remembers what it is given.
type engine struct {
	bytes.Buffer
	streams [][]byte
	have    []string
}

func (e *engine) Finish() error {
	e.streams = append(e.streams, bytes.Clone(e.Bytes()))
	e.Reset()
	return nil
}

func (e *engine) Exists(p string) (bool, error) {
	if e.Len() > 0 {
		return false, errors.New("asked in the middle of a stream")
	}
	return slices.Contains(e.have, p), nil
}

// archive makes a tar stream of headers; files get the content "x" as often as their size says.
func archive(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, header := range headers {
		if err := w.WriteHeader(&header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(w, io.LimitReader(strings.NewReader(strings.Repeat("x", int(header.Size))), header.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestUnpackLooksOnce: however many directories a stream has no entries for, the engine ends what it does once for each window.
func TestUnpackLooksOnce(t *testing.T) {
	e := &engine{}
	var headers []tar.Header
	for i := range 1000 {
		name := "d" + strconv.Itoa(i)
		e.have = append(e.have, "/to/"+name)
		headers = append(headers, tar.Header{Name: name + "/sub/file", Size: 10, Mode: 0o644})
	}
	written, err := files.Unpack(archive(t, headers...), e, files.Destination{Root: "/", Directory: "/to"})
	if err != nil || written.Files != 1000 || written.Bytes != 10_000 {
		t.Fatalf("%+v, %v", written, err)
	}
	if len(e.streams) != 1 {
		t.Errorf("the engine was given %d streams", len(e.streams))
	}
}

// TestUnpackSetsTimesOfDirectories, also of those that get files in a later stream of the engine.
func TestUnpackSetsTimesOfDirectories(t *testing.T) {
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	e := &engine{have: []string{"/to/old"}}
	_, err := files.Unpack(archive(t, tar.Header{Name: "a/", Typeflag: tar.TypeDir, Mode: 0o750, ModTime: at}, tar.Header{Name: "a/large", Size: 5 << 20},
		tar.Header{Name: "old/b", Size: 1}, tar.Header{Name: "a/c", Size: 1}), e, files.Destination{Root: "/", Directory: "/to"})
	if err != nil || len(e.streams) != 2 {
		t.Fatalf("%d streams, %v", len(e.streams), err)
	}
	var last *tar.Header
	for in := tar.NewReader(bytes.NewReader(e.streams[1])); ; {
		header, err := in.Next()
		if err != nil {
			break
		}
		last = header
	}
	if last.Name != "to/a/" || !last.ModTime.Equal(at) || last.Mode != 0o750 {
		t.Errorf("the last entry is %+v", last)
	}
}

// TestUnpackRefuses what leads out of the directory, and what would keep a processor busy.
func TestUnpackRefuses(t *testing.T) {
	link := tar.Header{Name: "a/l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}
	for name, test := range map[string]struct {
		kind    error
		headers []tar.Header
	}{
		"through its own link":   {files.ErrEscapes, []tar.Header{link, {Name: "a/l/passwd"}}},
		"deep through its link":  {files.ErrEscapes, []tar.Header{link, {Name: "./a//l/x/y/z"}}},
		"directory behind links": {files.ErrEscapes, []tar.Header{link, {Name: "a/l/x/", Typeflag: tar.TypeDir}}},
		"hard link through it":   {files.ErrEscapes, []tar.Header{{Name: "d/shadow"}, {Name: "d", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "x", Typeflag: tar.TypeLink, Linkname: "d/shadow"}}},
		"hard link to its link":  {files.ErrEntry, []tar.Header{{Name: "x/a"}, {Name: "f"}, {Name: "f", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, {Name: "x", Typeflag: tar.TypeLink, Linkname: "f"}, {Name: "x/passwd"}}},
		"endless link":           {files.ErrEntry, []tar.Header{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: strings.Repeat("a", 4096)}}},
		"many components":        {files.ErrEntry, []tar.Header{{Name: strings.Repeat("a/", 50_000) + "x"}}},
		"deep":                   {files.ErrEntry, []tar.Header{{Name: strings.Repeat("a/", 600) + "x"}}},
		"long":                   {files.ErrEntry, []tar.Header{{Name: strings.Repeat(strings.Repeat("a", 200)+"/", 18) + "x"}}},
		"long name":              {files.ErrEntry, []tar.Header{{Name: strings.Repeat("a", 256)}}},
	} {
		for i := range test.headers {
			test.headers[i].Format = tar.FormatPAX
		}
		e := &engine{}
		if _, err := files.Unpack(archive(t, test.headers...), e, files.Destination{Root: "/", Directory: "/to"}); !errors.Is(err, test.kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
	replaced := []tar.Header{link, {Name: "a/l/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: "a/l/x"}}
	if _, err := files.Unpack(archive(t, replaced...), &engine{}, files.Destination{Root: "/", Directory: "/to"}); err != nil {
		t.Errorf("a link that a directory has replaced: %v", err)
	}
}

// FuzzUnpack: whatever comes in, what goes out stays below the directory, belongs to the owner, and is a tar stream.
func FuzzUnpack(f *testing.F) {
	for _, header := range []tar.Header{
		{Name: "a/b", Size: 1, Mode: 0o6755}, {Name: "../x"}, {Name: "/x"}, {Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/x"},
		{Name: "h", Typeflag: tar.TypeLink, Linkname: "../x"}, {Name: "p", Typeflag: tar.TypeFifo}, {Name: "d/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: strings.Repeat("x", 300), PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "x"}},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&header); err != nil {
			f.Fatal(err)
		}
		io.CopyN(w, strings.NewReader("x"), header.Size)
		w.Close()
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		e := &engine{}
		_, err := files.Unpack(bytes.NewReader(stream), e, files.Destination{Root: "/", Directory: "/to/here", Missing: 1, Owner: files.Account{UID: 5, GID: 6}})
		if err == nil && len(e.streams) == 0 {
			t.Error("nothing was finished")
		}
		for _, out := range append(e.streams, e.Bytes()) {
			for in := tar.NewReader(bytes.NewReader(out)); ; {
				header, err := in.Next()
				if err != nil {
					break
				}
				if name := path.Clean(header.Name); !files.Within("/"+name, "/to/here") || header.Uid != 5 || header.Gid != 6 || header.Mode&0o6000 != 0 || header.Uname != "" {
					t.Errorf("%+v", header)
				}
				if header.Typeflag == tar.TypeLink && !files.Within("/"+header.Linkname, "/to/here") || len(header.PAXRecords) > 0 && header.PAXRecords["SCHILY.xattr.security.capability"] != "" {
					t.Errorf("%+v", header)
				}
			}
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01x"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		for r := bufio.NewReader(bytes.NewReader(stream)); ; {
			fields, err := record.Read(r)
			if err != nil {
				return
			}
			_, entryErr := files.ParseEntry(fields)
			_, eventErr := files.ParseEvent(fields)
			if entryErr == nil && eventErr == nil || files.ParseFailure(fields) == nil {
				t.Errorf("%q", fields)
			}
			again, err := record.Read(bufio.NewReader(bytes.NewReader(record.Append(nil, fields...))))
			if err != nil || !slices.Equal(again, fields) {
				t.Errorf("%q became %q, %v", fields, again, err)
			}
		}
	})
}
