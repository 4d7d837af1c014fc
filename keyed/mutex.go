// Package keyed has what there is one of for each key, for as long as somebody uses it.
package keyed

import (
	"context"
	"sync"
)

// Mutex is a lock for each key. It is empty at rest, and its zero value is ready.
type Mutex[K comparable] struct {
	mu    sync.Mutex
	locks map[K]*lock
}

type lock struct {
	held  chan struct{} // one slot
	users int           // who hold it or wait; guarded by Mutex.mu
}

// Lock waits for the key's lock, which unlock gives back, once; or returns the cause of ctx's end.
func (m *Mutex[K]) Lock(ctx context.Context, key K) (unlock func(), err error) {
	m.mu.Lock()
	l := m.locks[key]
	if l == nil {
		l = &lock{held: make(chan struct{}, 1)}
		if m.locks == nil {
			m.locks = map[K]*lock{}
		}
		m.locks[key] = l
	}
	l.users++
	m.mu.Unlock()
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; m.leave(key, l) }, nil
	case <-ctx.Done():
		m.leave(key, l)
		return nil, context.Cause(ctx)
	}
}

func (m *Mutex[K]) leave(key K, l *lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(m.locks, key)
	}
}

// Len is how many keys are in use.
func (m *Mutex[K]) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.locks)
}
