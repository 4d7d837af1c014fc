package actors_test

import (
	"testing"
	"testing/synctest"

	"github.com/agbox-dev/agbox/actors/lifecycle"
)

// TestLinkLost: a link that is lost is told, and what that makes of the sandbox a look at it tells. A frozen one cannot answer.
func TestLinkLost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.runtime.Run = w.runtime.UntilCancelled
		for _, id := range []string{"box-1", "box-2"} {
			w.create(id, spec)
			w.exec(id, "exec-"+id)
		}
		w.runtime.LoseLink("box-1", false)
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED LINK_LOST")
		w.runtime.LoseLink("box-1", true)
		synctest.Wait()
		w.expect("box-1", "ACCEPTED PREPARING READY EXEC_STARTED LINK_LOST LINK_LOST EXEC_FAILED FAILED")

		w.request("box-2", lifecycle.Pause{})
		w.runtime.LoseLink("box-2", false)
		synctest.Wait()
		w.expect("box-2", "ACCEPTED PREPARING READY EXEC_STARTED PAUSE_REQUESTED PAUSED")
	})
}
