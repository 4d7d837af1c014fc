package envd_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/agbox-dev/agbox/gateway/envd/proto/filesystem"
)

// form is the body of an upload: names and contents, and its content type. A file without a name has no filename at all.
func form(t *testing.T, named ...string) ([]byte, http.Header) {
	t.Helper()
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := 0; i+1 < len(named); i += 2 {
		disposition := `form-data; name="file"`
		if named[i] != "" {
			disposition += fmt.Sprintf(`; filename="%s"`, named[i])
		}
		part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {disposition}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := part.Write([]byte(named[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return body.Bytes(), http.Header{"Content-Type": {w.FormDataContentType()}}
}

var octets = http.Header{"Content-Type": {"application/octet-stream"}}

// TestUploads: files go in by forms and as they are, packed or not, with what is said of them, and come out whole and in parts.
func TestUploads(t *testing.T) {
	t.Parallel()
	p := start(t)
	expect := func(what string, wantStatus int, want string) func(int, http.Header, string) {
		return func(status int, _ http.Header, body string) {
			t.Helper()
			if body = strings.TrimSpace(body); status != wantStatus || body != want && (want == "" || !strings.Contains(body, want)) {
				t.Errorf("%s: %d %s, want %d %s", what, status, body, wantStatus, want)
			}
		}
	}
	body, header := form(t, "a/one", "1", "/tmp/two", "22")
	expect("a form", 200, `[{"name":"one","path":"/home/user/a/one","type":"file"},{"name":"two","path":"/tmp/two","type":"file"}]`)(p.do("POST", "/files", body, header))
	body, header = form(t, "", "3")
	expect("a form without a filename", 200, `"path":"/home/user/named"`)(p.do("POST", "/files?path=named", body, header))
	expect("as root", 200, `"path":"/root/r"`)(p.do("POST", "/files?path=r&username=root", []byte("r"), octets))

	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(strings.Repeat("x", 100_000))); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	header = http.Header{"Content-Type": octets["Content-Type"], "Content-Encoding": {"gzip"}, "X-Metadata-Purpose": {"test"}}
	expect("packed", 200, `"metadata":{"purpose":"test"}`)(p.do("POST", "/files?path=big", packed.Bytes(), header))
	expect("what was packed", 200, strings.Repeat("x", 100_000))(p.do("GET", "/files?path=big", nil, nil))
	status, answered, part := p.do("GET", "/files?path=a/one", nil, http.Header{"Range": {"bytes=0-0"}})
	if status != 206 || part != "1" || !strings.HasPrefix(answered.Get("Content-Disposition"), "inline") {
		t.Errorf("a part: %d %q %v", status, part, answered)
	}
	expect("an empty file goes in", 200, "/home/user/empty")(p.do("POST", "/files?path=empty", nil, octets))
	expect("an empty file", 200, "")(p.do("GET", "/files?path=empty", nil, nil))
	if status, answered, body := p.do("GET", "/files?path=big", nil, http.Header{"Accept-Encoding": {"gzip, identity;q=0"}}); status != 200 || answered.Get("Content-Encoding") != "gzip" || len(body) > 1000 {
		t.Errorf("packed for who wants nothing else: %d, %d bytes", status, len(body))
	}
	expect("nothing acceptable", 406, "406")(p.do("GET", "/files?path=big", nil, http.Header{"Accept-Encoding": {"br, identity;q=0"}}))
	expect("missing", 404, `{"code":404,"message":"path: `)(p.do("GET", "/files?path=none", nil, nil))
	expect("a directory", 400, `"code":400`)(p.do("GET", "/files?path=a", nil, nil))
	expect("over a directory", 400, `"code":400`)(p.do("POST", "/files?path=a", nil, octets))
	expect("an unknown user", 401, "invalid username: 'stranger'")(p.do("GET", "/files?path=x&username=stranger", nil, nil))
	expect("no path", 400, "name the file")(p.do("POST", "/files", nil, octets))
	body, header = form(t, "same", "1", "./same", "2")
	expect("one path twice", 400, "two files")(p.do("POST", "/files", body, header))
	expect("another type", 400, "Content-Type")(p.do("POST", "/files?path=x", nil, http.Header{"Content-Type": {"text/plain"}}))
	expect("a broken form", 400, "cannot be read")(p.do("POST", "/files", []byte("--x\r\n"), http.Header{"Content-Type": {"multipart/form-data; boundary=x"}}))
	expect("what is not packed", 400, "gzip")(p.do("POST", "/files?path=x", []byte("plain"), http.Header{"Content-Type": octets["Content-Type"], "Content-Encoding": {"gzip"}}))
	expect("metadata of another script", 400, "printable")(p.do("POST", "/files?path=x", nil, http.Header{"Content-Type": octets["Content-Type"], "X-Metadata-A": {"ä"}}))
	expect("too much metadata", 400, "4096")(p.do("POST", "/files?path=x", nil, http.Header{"Content-Type": octets["Content-Type"], "X-Metadata-A": {strings.Repeat("a", 4096)}}))
	expect("nothing there", 404, `"code":404`)(p.do("POST", "/init", nil, nil))
	expect("another call of the wire", 404, `"code":404`)(p.do("POST", "/process.Process/Unknown", nil, nil))
	expect("another stream", 200, `"code":"unimplemented"`)(p.do("POST", "/process.Process/Unknown", nil, http.Header{"Content-Type": {"application/connect+json"}}))
}

// TestTokens: who shows neither a sandbox's token nor its signature gets nothing; a signed URL needs no header at all.
func TestTokens(t *testing.T) {
	t.Parallel()
	p := start(t)
	sign := func(path, operation, user, expiration string) string {
		text := path + ":" + operation + ":" + user + ":token of " + p.id
		if expiration != "" {
			text += ":" + expiration
		}
		sum := sha256.Sum256([]byte(text))
		query := url.Values{"path": {path}, "signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}}
		if user != "" {
			query.Set("username", user)
		}
		if expiration != "" {
			query.Set("signature_expiration", expiration)
		}
		return "/files?" + query.Encode()
	}
	bare := func(more http.Header) http.Header {
		header := http.Header{"E2b-Sandbox-Id": nil, "E2b-Sandbox-Port": nil, "X-Access-Token": nil}
		for name, values := range more {
			header[name] = values
		}
		return header
	}
	body, header := form(t, "", "signed")
	for _, c := range []struct {
		what, method, path string
		body               []byte
		header             http.Header
		status             int
		want               string
	}{
		{"a signed upload", "POST", sign("signed", "write", "", ""), body, bare(header), 200, `"path":"/home/user/signed"`},
		{"a signed download", "GET", sign("signed", "read", "", "4102444800"), nil, bare(nil), 200, "signed"},
		{"as root", "POST", sign("signed", "write", "root", ""), body, bare(header), 200, `"path":"/root/signed"`},
		{"whose time is over", "GET", sign("signed", "read", "", "1000"), nil, bare(nil), 401, `{"code":401,"message":"signature is already expired"}`},
		{"to write with a signature to read", "POST", sign("signed", "read", "", ""), body, bare(header), 401, "invalid signature"},
		{"of another path", "GET", strings.Replace(sign("signed", "read", "", ""), "path=signed", "path=other", 1), nil, bare(nil), 401, "invalid signature"},
		{"of another user", "GET", sign("signed", "read", "", "") + "&username=root", nil, bare(nil), 401, "invalid signature"},
		{"without any", "GET", "/files?path=signed", nil, http.Header{"X-Access-Token": nil}, 401, "missing signature query parameter"},
		{"with another token", "GET", "/files?path=signed", nil, http.Header{"X-Access-Token": {"x"}}, 401, "access token present in header but does not match"},
		{"a call without a token", "POST", "/process.Process/List", []byte("{}"), http.Header{"X-Access-Token": nil, "Content-Type": {"application/json"}}, 401, `"code":401`},
		{"health", "GET", "/health", nil, http.Header{"X-Access-Token": nil}, 204, ""},
		{"another sandbox's health", "GET", "/health", nil, http.Header{"E2b-Sandbox-Id": {"unknown-box"}}, 502, `"message":"The sandbox was not found","code":502}`},
		{"a file of another sandbox", "GET", "/files?path=x", nil, http.Header{"E2b-Sandbox-Id": {"unknown-box"}}, 502, `"sandboxId":"unknown-box"`},
	} {
		if status, _, body := p.do(c.method, c.path, c.body, c.header); status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s: %d %s, want %d %s", c.what, status, body, c.status, c.want)
		}
	}
	listed := p.listed.Load()
	if status, _, text := p.do("GET", sign("signed", "read", "", ""), nil, bare(nil)); status != 200 || p.listed.Load() != listed {
		t.Errorf("a signature of a sandbox that is known: %d %s, and the daemon is asked %d times", status, text, p.listed.Load()-listed)
	}
	if err := p.client.Pause(t.Context(), p.id); err != nil {
		t.Fatal(err)
	}
	if status, _, body := p.do("GET", "/health", nil, nil); status != 502 {
		t.Errorf("health of a sandbox that is paused: %d %s", status, body)
	}
}

// TestFiles: each call about files, and what it refuses.
func TestFiles(t *testing.T) {
	t.Parallel()
	p := start(t)
	ctx := t.Context()
	if status, _, body := p.do("POST", "/files?path=d/f", []byte("text"), octets); status != 200 {
		t.Fatal(body)
	}
	stat, err := p.files.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "~/d/f"}))
	if err != nil {
		t.Fatal(err)
	}
	e := stat.Msg.Entry
	if got := fmt.Sprint(e.Name, e.Type, e.Path, e.Size, e.Permissions, e.Owner, e.Group); got != "fFILE_TYPE_FILE/home/user/d/f4-rw-r--r--useruser" || e.Mode != 0o644 {
		t.Errorf("stat: %s %o", got, e.Mode)
	}
	if _, err := p.files.MakeDir(ctx, as(&filesystem.MakeDirRequest{Path: "x/y"}, "root")); err != nil {
		t.Error(err)
	}
	if _, err := p.files.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: "d/e"})); err != nil {
		t.Error(err)
	}
	moved, err := p.files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: "d/f", Destination: "d/e/g"}))
	if err != nil || moved.Msg.Entry.Path != "/home/user/d/e/g" {
		t.Errorf("moved: %v, %v", moved, err)
	}
	for depth, want := range []string{"e", "e", "e e/g"} {
		list, err := p.files.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: "d", Depth: uint32(depth)}))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range list.Msg.Entries {
			names = append(names, strings.TrimPrefix(e.Path, "/home/user/d/"))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("depth %d: %s, want %s", depth, got, want)
		}
	}
	for range 2 { // what is not there is removed, too
		if _, err := p.files.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: "d/e"})); err != nil {
			t.Error(err)
		}
	}
	_, err = p.files.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "d/e/g"}))
	wantCode(t, "stat of what is not there", err, connect.CodeNotFound)
	_, err = p.files.Stat(ctx, as(&filesystem.StatRequest{Path: "x"}, "stranger"))
	wantCode(t, "an unknown user", err, connect.CodeUnauthenticated)
	_, err = p.files.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: "~root/x"}))
	wantCode(t, "another's home", err, connect.CodeInvalidArgument)
	_, err = p.files.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: "d"}))
	wantCode(t, "a directory that is there", err, connect.CodeAlreadyExists)
	_, err = p.files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: "none", Destination: "x"}))
	wantCode(t, "a move of nothing", err, connect.CodeNotFound)
	_, err = p.files.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: "none"}))
	wantCode(t, "a list of nothing", err, connect.CodeNotFound)
	bad := connect.NewRequest(&filesystem.StatRequest{Path: "d"})
	bad.Header().Set("Authorization", "Basic ???")
	_, err = p.files.Stat(ctx, bad)
	wantCode(t, "a broken user", err, connect.CodeUnauthenticated)
}

// TestWatches: a stream tells of a directory from its start on; a watcher keeps events until they are fetched, those of an upload that was
// answered included.
func TestWatches(t *testing.T) {
	t.Parallel()
	p := start(t)
	ctx := t.Context()
	if _, err := p.files.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: "d"})); err != nil {
		t.Fatal(err)
	}
	stream, err := p.files.WatchDir(ctx, connect.NewRequest(&filesystem.WatchDirRequest{Path: "d", IncludeEntry: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	if !stream.Receive() || stream.Msg().GetStart() == nil {
		t.Fatalf("the first is %v, %v, want the start", stream.Msg(), stream.Err())
	}
	made, err := p.files.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "d"}))
	if err != nil {
		t.Fatal(err)
	}
	if status, _, body := p.do("POST", "/files?path=d/f", []byte("text"), octets); status != 200 {
		t.Fatal(body)
	}
	fetch := func() string {
		t.Helper()
		got, err := p.files.GetWatcherEvents(ctx, connect.NewRequest(&filesystem.GetWatcherEventsRequest{WatcherId: made.Msg.WatcherId}))
		if err != nil {
			t.Fatal(err)
		}
		var told []string
		for _, e := range got.Msg.Events {
			told = append(told, strings.TrimPrefix(e.Type.String(), "EVENT_TYPE_")+" "+e.Name)
		}
		return strings.Join(told, ", ")
	}
	if got := fetch(); got != "CREATE f, CHMOD f, WRITE f" {
		t.Errorf("the watcher kept %s", got)
	}
	if got := fetch(); got != "" {
		t.Errorf("fetched again: %s", got)
	}
	if _, err := p.files.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: "d/f", Destination: "d/g"})); err != nil {
		t.Fatal(err)
	}
	var told []string
	for len(told) < 5 && stream.Receive() {
		e := stream.Msg().GetFilesystem()
		told = append(told, fmt.Sprintf("%s %s %v", strings.TrimPrefix(e.GetType().String(), "EVENT_TYPE_"), e.GetName(), e.GetEntry().GetPath()))
	}
	if got := strings.Join(told, ", "); !strings.HasSuffix(got, "RENAME f , CREATE g /home/user/d/g") {
		t.Errorf("the stream told %s, %v", got, stream.Err())
	}
	remove := func() error {
		_, err := p.files.RemoveWatcher(ctx, connect.NewRequest(&filesystem.RemoveWatcherRequest{WatcherId: made.Msg.WatcherId}))
		return err
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	wantCode(t, "a watcher that was removed", remove(), connect.CodeNotFound)
	_, err = p.files.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "none"}))
	wantCode(t, "a watcher of nothing", err, connect.CodeNotFound)
	_, err = p.files.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "d/g"}))
	wantCode(t, "a watcher of a file", err, connect.CodeInvalidArgument)
	for i := range 65 {
		_, err = p.files.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: "d"}))
		if i < 64 && err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, "the 65th watcher", err, connect.CodeResourceExhausted)
}

// TestMetrics: what the sandbox uses.
func TestMetrics(t *testing.T) {
	t.Parallel()
	p := start(t)
	status, _, body := p.do("GET", "/metrics", nil, nil)
	var got map[string]float64
	if err := json.Unmarshal([]byte(body), &got); status != 200 || err != nil || got["mem_used"] != 3<<20 || got["mem_total"] != 1<<30 {
		t.Errorf("%d %s, %v", status, body, err)
	}
}
