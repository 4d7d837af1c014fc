package protocol_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/agbox-dev/agbox/guest/protocol"
)

var result = Result{
	ID: "exec-1", ExitCode: 137, Signal: 9,
	Started: time.Unix(1790000000, 123456789), Ended: time.Unix(1790000001, 987654321),
	UserTime: 1500 * time.Microsecond, SystemTime: 3 * time.Nanosecond, MaxRSS: 7 << 20,
	Cancelled: true, TimedOut: true, OutputLost: 1 << 40,
	OutputDropped: 3, StdoutBytes: 1 << 33, StderrBytes: 1<<64 - 1, OOM: true,
	ErrorCode: CodeCwdInvalid, ErrorMessage: `cwd "/x" does not exist`,
}

var messages = map[string]Message{
	"hello": &Hello{Version: 1, InitVersion: "1.2.3", Booted: true,
		Status: BootStatus{State: BootExited, ExitCode: 3, Signal: -1},
		Execs:  []KnownExec{{ID: "a", PID: 7}, {ID: "b"}}, Frozen: true},
	"hello, empty": &Hello{},
	"boot":         &Boot{},
	"booted":       &Booted{Status: BootStatus{State: BootHandedOver}},
	"exec": &Exec{ID: "e", Argv: []string{"sh", "", "-c", "äöü\n"}, Env: []string{"A=", "B=c=d"},
		Cwd: "sub", User: "agbox:users", Timeout: 90 * time.Second, Grace: 5 * time.Millisecond,
		MaxOutput: 1 << 50},
	"exec, terminal": &Exec{ID: "e", Roles: []string{RoleStdout, RoleStdin}, Terminal: &Size{Rows: 24, Columns: 65535}},
	"exec, no size":  &Exec{ID: "e", Terminal: &Size{}},
	"exec, long":     &Exec{ID: "e", Argv: []string{strings.Repeat("x", 1<<20)}},
	"started":        &Started{ID: "e", PID: 1 << 22},
	"cancel":         &Cancel{ID: "e", Grace: time.Hour},
	"result":         &result,
	"result 0":       &Result{ID: "e"},
	"ack":            &Ack{ID: "e"},
	"stop":           &Stop{Grace: time.Second},
	"signal":         &Signal{Token: 1<<64 - 1, ID: "e", Signal: 64},
	"signalled":      &Signalled{Token: 5, Outcome: SignalRefused, Errno: 22},
	"freeze":         &Freeze{},
	"frozen":         &Frozen{},
	"thaw":           &Thaw{},
	"close stdin":    &CloseStdin{ID: "e"},
	"dial":           &Dial{Token: 9, Port: 65535, V6: true},
	"dialed":         &Dialed{Token: 9, Errno: 111},
	"resize":         &Resize{Token: 7, ID: "e", Size: Size{Rows: 1, Columns: 300}},
}

func encode(t testing.TB, m Message, nfds int) []byte {
	t.Helper()
	frame, err := Encode(m, nfds)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestRoundTrip(t *testing.T) {
	for name, m := range messages {
		t.Run(name, func(t *testing.T) {
			var d Decoder
			d.Feed(encode(t, m, 0), nil)
			got, _, err := d.Next()
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("%+v, %v; want %+v", got, err, m)
			}
			if got, _, err := d.Next(); got != nil || err != nil {
				t.Fatalf("after the end: %v, %v", got, err)
			}
		})
	}
}

func TestMillisecondsRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		0: 0, -1: 0, 1: time.Millisecond, time.Millisecond: time.Millisecond,
		time.Millisecond + 1: 2 * time.Millisecond,
	} {
		var dec Decoder
		dec.Feed(encode(t, &Stop{Grace: d}, 0), nil)
		if m, _, err := dec.Next(); err != nil || m.(*Stop).Grace != want {
			t.Errorf("%d: %+v, %v", d, m, err)
		}
	}
}

func TestTooBig(t *testing.T) {
	if _, err := Encode(&Exec{Argv: []string{strings.Repeat("x", MaxFrame)}}, 3); err != ErrTooBig {
		t.Fatal(err)
	}
}
