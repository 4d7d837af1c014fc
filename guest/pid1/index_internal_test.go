package pid1

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/guest/protocol"
)

// A clock that is set back stands still in the index until it has caught up.
func TestIndexOfClockSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	x := &index{fd: int(f.Fd())}
	x.begin()
	want := []int64{1000, 1000, 1000, 1001}
	for _, at := range []uint64{1000, 400, 1000, 1001} {
		x.at, x.length = at, [2]uint64{1}
		x.endRun()
	}
	x.write()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d protocol.IndexDecoder
	d.Feed(data)
	var got []int64
	for r, more := d.Next(); more; r, more = d.Next() {
		got = append(got, r.At.Sub(time.UnixMicro(0)).Microseconds())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
