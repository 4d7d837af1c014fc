package protocol_test

import (
	"reflect"
	"testing"

	. "github.com/agbox-dev/agbox/guest/protocol"
)

func TestRelayRoundTrip(t *testing.T) {
	for name, m := range map[string]Message{
		"open":        &Open{ID: "e", Kinds: []string{KindStdout, KindNull}, Stdout: 1 << 40, Stderr: 2, Index: 3},
		"open, again": &Open{ID: CommandID, Again: true},
		"ready":       &Ready{},
		"data":        &Data{ID: "e", Stream: StreamPipe, Offset: 1<<64 - 1, Bytes: make([]byte, MaxData)},
		"data, end":   &Data{ID: "e", Stream: StreamStderr},
		"room":        &Credit{ID: "e"},
		"deaf":        &InputClosed{ID: "e"},
		"closed":      &Closed{ID: "e"},
	} {
		t.Run(name, func(t *testing.T) {
			var d Decoder
			d.Feed(encode(t, m, 0), nil)
			if got, _, err := d.Next(); err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("%+v, %v; want %+v", got, err, m)
			}
		})
	}
}
