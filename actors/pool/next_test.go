package pool_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/agbox-dev/agbox/actors/pool"
)

// TestNext: what is made and removed, and when to look again.
func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	at := func(d time.Duration) time.Time { return now.Add(d) }
	ready := func(names ...string) []string { return names }
	for name, test := range map[string]struct {
		state pool.State
		want  string
	}{
		"nothing is known, nothing is made": {pool.State{Recent: 1, Makers: 2}, "[] [] never"},
		"the configured ones, a few at once": {pool.State{Makers: 2, Classes: []pool.Supply{{Class: "a", Size: 5}, {Class: "b", Size: 1}}},
			"[a a] [] never"},
		"what is being made counts": {pool.State{Makers: 2, Classes: []pool.Supply{{Class: "a", Size: 5, Making: 1}, {Class: "b", Size: 1}}},
			"[a] [] never"},
		"enough are ready": {pool.State{Makers: 2, Classes: []pool.Supply{{Class: "a", Size: 2, Ready: ready("1"), Making: 1}}}, "[] [] never"},
		"nothing right after one was taken": {pool.State{Makers: 2, TakenAt: at(-10 * time.Millisecond), Classes: []pool.Supply{{Class: "a", Size: 1}}},
			"[] [] 40ms"},
		"then it is": {pool.State{Makers: 2, TakenAt: at(-pool.Quiet), Classes: []pool.Supply{{Class: "a", Size: 1}}}, "[a] [] never"},
		"the last class is kept for a while": {pool.State{Recent: 1, Makers: 2, Classes: []pool.Supply{{Class: "a", RecentUntil: at(time.Minute)}}},
			"[a] [] 1m0s"},
		"and then no more": {pool.State{Recent: 1, Makers: 2, Classes: []pool.Supply{{Class: "a", RecentUntil: at(0), Ready: ready("1")}}},
			"[] [1] never"},
		"recent adds nothing to what is configured": {pool.State{Recent: 1, Makers: 2, Classes: []pool.Supply{
			{Class: "a", Size: 2, RecentUntil: at(time.Minute), Ready: ready("1", "2")}}}, "[] [] 1m0s"},
		"a surplus goes, oldest first": {pool.State{Makers: 2, Classes: []pool.Supply{{Class: "a", Size: 1, Ready: ready("1", "2", "3")}}}, "[] [1 2] never"},
		"a try that failed is spaced": {pool.State{Makers: 2, Classes: []pool.Supply{{Class: "a", Size: 1, RetryAt: at(time.Second)}, {Class: "b", Size: 1}}},
			"[b] [] 1s"},
		"what cannot be made is not tried": {pool.State{Makers: 2, Classes: []pool.Supply{{Class: "a", Size: 1, Unfit: true}}}, "[] [] never"},
		"what is short frees all": {pool.State{Recent: 1, Makers: 2, Short: true, Classes: []pool.Supply{
			{Class: "a", Size: 1, Ready: ready("1")}, {Class: "b", RecentUntil: at(time.Minute), Ready: ready("2")}}}, "[] [1 2] 1m0s"},
	} {
		plan := pool.Next(test.state, now)
		when := "never"
		if !plan.At.IsZero() {
			when = plan.At.Sub(now).String()
		}
		if got := fmt.Sprintf("%v %v %s", plan.Make, plan.Remove, when); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
