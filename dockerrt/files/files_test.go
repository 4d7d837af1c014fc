package files_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/agbox-dev/agbox/dockerrt/files"
	"github.com/agbox-dev/agbox/dockerrt/files/record"
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
