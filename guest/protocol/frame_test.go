package protocol_test

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	. "github.com/agbox-dev/agbox/guest/protocol"
)

// Whatever the pieces that the stream arrives in, descriptors come out with their message.
func TestDecoderPieces(t *testing.T) {
	exec := &Exec{ID: "e", Argv: []string{"true"}}
	stream := slices.Concat(encode(t, &Ack{ID: "x"}, 0), encode(t, exec, 3), encode(t, &Boot{}, 2), encode(t, &Stop{}, 0))
	second := len(encode(t, &Ack{ID: "x"}, 0))
	third := second + len(encode(t, exec, 3))
	for size := 1; size <= len(stream); size++ {
		var d Decoder
		var types []Type
		var fds []int
		for at := 0; at < len(stream); at += size {
			end := min(at+size, len(stream))
			var arrived []int
			if at <= second && second < end {
				arrived = append(arrived, 10, 11, 12)
			}
			if at <= third && third < end {
				arrived = append(arrived, 20, 21)
			}
			d.Feed(stream[at:end], arrived)
			for {
				m, got, err := d.Next()
				if err != nil {
					t.Fatalf("size %d: %v", size, err)
				}
				if m == nil {
					break
				}
				types, fds = append(types, m.Type()), append(fds, got...)
			}
		}
		if !slices.Equal(types, []Type{TypeAck, TypeExec, TypeBoot, TypeStop}) || !slices.Equal(fds, []int{10, 11, 12, 20, 21}) {
			t.Fatalf("size %d: %v, %v", size, types, fds)
		}
	}
}

func TestDecoderErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		frame []byte
		fds   int
		want  error
	}{
		"magic":               {[]byte{0xA2, 8, 0, 0, 0, 0, 0, 0}, 0, ErrMalformed},
		"reserved":            {[]byte{0xA1, 8, 0, 1, 0, 0, 0, 0}, 0, ErrMalformed},
		"too big":             {[]byte{0xA1, 8, 0, 0, 1, 0, 0x40, 0}, 0, ErrTooBig},
		"missing descriptors": {[]byte{0xA1, 2, 2, 0, 0, 0, 0, 0}, 1, ErrMalformed},
		"too many":            {[]byte{0xA1, 2, 2, 0, 0, 0, 0, 0}, MaxFiles + 1, ErrMalformed},
		"unknown kind":        {[]byte{0xA1, 8, 0, 0, 2, 0, 0, 0, 1<<3 | 2, 0}, 0, ErrMalformed},
		"wrong kind":          {[]byte{0xA1, 8, 0, 0, 2, 0, 0, 0, 1 << 3, 0}, 0, ErrMalformed},
		"field too long":      {[]byte{0xA1, 8, 0, 0, 2, 0, 0, 0, 1<<3 | 1, 9}, 0, ErrMalformed},
		"no value":            {[]byte{0xA1, 8, 0, 0, 1, 0, 0, 0, 1<<3 | 1}, 0, ErrMalformed},
		"endless number":      {append([]byte{0xA1, 8, 0, 0, 11, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 11)...), 0, ErrMalformed},
		"number out of range": {[]byte{0xA1, 5, 0, 0, 7, 0, 0, 0, 2 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, 0, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			var d Decoder
			d.Feed(tt.frame, make([]int, tt.fds))
			if m, _, err := d.Next(); err != tt.want {
				t.Fatalf("%v, %v; want %v", m, err, tt.want)
			}
			if len(d.Rest()) != tt.fds {
				t.Fatal("descriptors are lost")
			}
		})
	}
}

// What a newer peer may say: a type and a field that this version does not know.
func TestDecoderSkipsUnknown(t *testing.T) {
	var d Decoder
	d.Feed([]byte{0xA1, 99, 1, 0, 2, 0, 0, 0, 1 << 3, 5}, []int{7})
	m, fds, err := d.Next()
	if !reflect.DeepEqual(m, &Unknown{Kind: 99}) || !slices.Equal(fds, []int{7}) || err != nil {
		t.Fatal(m, fds, err)
	}
	d.Feed([]byte{0xA1, byte(TypeAck), 0, 0, 9, 0, 0, 0, 14 << 3, 5, 15<<3 | 1, 1, 'z', 1<<3 | 1, 2, 'i', 'd'}, nil)
	if m, _, err = d.Next(); !reflect.DeepEqual(m, &Ack{ID: "id"}) || err != nil {
		t.Fatal(m, err)
	}
}

// A stream of anything ends in messages or an error, and every message survives another round.
func FuzzDecoder(f *testing.F) {
	for _, m := range messages {
		if frame := encode(f, m, 0); len(frame) < 1000 {
			f.Add(frame)
		}
	}
	f.Add([]byte{0xA1, 4, 3, 0, 4, 0, 0, 0, 1<<3 | 1, 1, 'e', 0})
	// What a fuzzer once failed with.
	f.Add([]byte("\xa1\a\x00\x000\x00\x00\x00000000000\x920000\xaa\xb4\xf6\xb4\x85\xe1\xad0000000000000000000000000 \x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var d Decoder
		d.Feed(data, []int{3, 4, 5})
		for {
			m, fds, err := d.Next()
			if m == nil || err != nil {
				return
			}
			again := Decoder{}
			again.Feed(encode(t, m, len(fds)), fds)
			if got, _, err := again.Next(); err != nil || !reflect.DeepEqual(got, m) {
				t.Fatalf("%+v, then %+v, %v", m, got, err)
			}
		}
	})
}
