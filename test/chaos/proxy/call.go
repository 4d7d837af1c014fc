package proxy

import (
	"regexp"
	"sync"
)

// Phase is a point in the life of a call.
type Phase int

const (
	// Before: the engine has not heard of the call.
	Before Phase = iota
	// After: the engine has done what was asked, and the caller has not heard so.
	After
	// Body: the caller has the head of the reply.
	Body
)

func (p Phase) String() string { return [...]string{"before", "after", "body"}[p] }

// Call is a request that came through.
type Call struct {
	// N counts all calls from 1, in the order in which they arrived.
	N int
	// Path is without the API version.
	Method, Path string
}

func (c Call) String() string { return c.Method + " " + c.Path }

var apiVersion = regexp.MustCompile(`^/v[0-9]+\.[0-9]+/`)

func pathOf(urlPath string) string { return apiVersion.ReplaceAllString(urlPath, "/") }

// ledger remembers calls, and can end those that are under way.
type ledger struct {
	mu    sync.Mutex
	seen  []Call
	open  map[int]func()
	watch func(Call, Phase)
	// closed keeps calls from beginning once those under way are waited for.
	closed  bool
	serving sync.WaitGroup
}

// begin notes a call that cut ends; end must follow. It is false for one that comes too late.
func (l *ledger) begin(method, path string, cut func()) (Call, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return Call{}, false
	}
	call := Call{N: len(l.seen) + 1, Method: method, Path: path}
	l.seen = append(l.seen, call)
	l.open[call.N] = cut
	l.serving.Add(1)
	return call, true
}

func (l *ledger) end(call Call) {
	l.mu.Lock()
	delete(l.open, call.N)
	l.mu.Unlock()
	l.serving.Done()
}

// close lets no more calls begin and returns when none is under way.
func (l *ledger) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.serving.Wait()
}

func (l *ledger) tell(call Call, phase Phase) {
	l.mu.Lock()
	watch := l.watch
	l.mu.Unlock()
	if watch != nil {
		watch(call, phase)
	}
}

// Calls returns the calls that came through since New, in the order in which they arrived.
func (p *Proxy) Calls() []Call {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	return append([]Call(nil), p.ledger.seen...)
}

// OnCall has watch called at each Phase of every call from now on, one at a time or several at once; the call
// waits meanwhile. nil ends that.
func (p *Proxy) OnCall(watch func(Call, Phase)) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	p.ledger.watch = watch
}

// Cut drops the connection of every call under way whose "METHOD /path" matches, event streams included, and
// returns how many these were.
func (p *Proxy) Cut(match *regexp.Regexp) int {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	count := 0
	for n, cut := range p.ledger.open {
		if match.MatchString(p.ledger.seen[n-1].String()) {
			cut()
			count++
		}
	}
	return count
}
