package persist_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// BenchmarkAppend is the time of one durable step: alone, and with many sandboxes writing at once.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 50} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			db := open(b, filepath.Join(b.TempDir(), "ids.db"))
			var next atomic.Int64
			b.SetParallelism(writers)
			b.ResetTimer()
			body := func(id string, n func() bool) {
				if err := db.Append(create(id)); err != nil {
					b.Error(err)
				}
				for after := uint64(1); n(); after++ {
					if err := db.Append(tell(id, after, agboxv1.EventType_SANDBOX_PREPARING, "")); err != nil {
						b.Error(err)
					}
				}
			}
			if writers == 1 {
				body("box-1", b.Loop)
				return
			}
			b.RunParallel(func(pb *testing.PB) { body(fmt.Sprintf("box-%d", next.Add(1)), pb.Next) })
		})
	}
}
