package proxy

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// Rule says which calls suffer what, and when.
type Rule struct {
	// Method is the one it is about, "" is all.
	Method string
	// Path matches the path without the API version; nil matches all.
	Path  *regexp.Regexp
	Phase Phase
	// Nth is the one call of those that match, counted from 1, that suffers; 0 is all.
	Nth int
	// Chance is the part of them that suffers; 0 is all. Whether the kth call that matches does is decided by the
	// proxy's seed, the number of calls to Use, the rule's place and k alone.
	Chance float64
	Fault  Fault
}

// Fault is what happens to a call. It returns nil for a call that goes on.
type Fault struct {
	name string
	// bytes of the body pass before it happens, in phase Body.
	bytes int64
	do    func(ctx context.Context) verdict
	// bodily: it makes sense in phase Body.
	bodily bool
}

// verdict is what becomes of the call.
type verdict struct {
	drop   bool
	status int
	reason string
}

func (f Fault) String() string { return f.name }

// Delay lets the call go on after d.
func Delay(d time.Duration) Fault {
	return Fault{name: fmt.Sprintf("delay %s", d), bodily: true, do: func(ctx context.Context) verdict {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return verdict{}
	}}
}

// Hang lets the call go on when released is closed, or not at all when the caller leaves first.
func Hang(released <-chan struct{}) Fault {
	return Fault{name: "hang", bodily: true, do: func(ctx context.Context) verdict {
		select {
		case <-released:
			return verdict{}
		case <-ctx.Done():
			return verdict{drop: true}
		}
	}}
}

// Status answers with an engine's error of that status. After forwarding, the engine has done what it denies.
func Status(code int, message string) Fault {
	return Fault{name: fmt.Sprintf("status %d", code), do: func(context.Context) verdict {
		return verdict{status: code, reason: message}
	}}
}

// Drop closes the caller's connection.
func Drop() Fault {
	return Fault{name: "drop", bodily: true, do: func(context.Context) verdict { return verdict{drop: true} }}
}

// Truncate lets n bytes of the reply's body through and then closes the caller's connection. It is for Body.
func Truncate(n int64) Fault {
	f := Drop()
	f.name, f.bytes = fmt.Sprintf("truncate after %d bytes", n), n
	return f
}

// Run calls do and then closes the caller's connection.
func Run(do func()) Fault {
	return Fault{name: "run", bodily: true, do: func(context.Context) verdict {
		do()
		return verdict{drop: true}
	}}
}

func (r Rule) check() error {
	switch {
	case r.Fault.do == nil:
		return fmt.Errorf("%w: it has no fault", ErrBadRule)
	case r.Phase == Body && !r.Fault.bodily:
		return fmt.Errorf("%w: %s cannot happen in the middle of a reply", ErrBadRule, r.Fault)
	case r.Phase != Body && r.Fault.bytes > 0:
		return fmt.Errorf("%w: %s can only happen in the middle of a reply", ErrBadRule, r.Fault)
	}
	return nil
}

func (r Rule) matches(call Call, phase Phase) bool {
	return r.Phase == phase && (r.Method == "" || r.Method == call.Method) &&
		(r.Path == nil || r.Path.MatchString(call.Path))
}

// rules are those in force, with the number of calls that each has matched.
type rules struct {
	mu      sync.Mutex
	seed    uint64
	used    int
	list    []Rule
	matched []int
	done    map[string]int
}

// choose returns the fault of the first rule that the call falls under.
func (r *rules) choose(call Call, phase Phase) (Fault, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, rule := range r.list {
		if !rule.matches(call, phase) {
			continue
		}
		r.matched[i]++
		if k := r.matched[i]; rule.Nth > 0 && k != rule.Nth || rule.Chance > 0 && !r.draw(i, k, rule.Chance) {
			continue
		}
		r.done[rule.Fault.name]++
		return rule.Fault, true
	}
	return Fault{}, false
}

func (r *rules) draw(rule, k int, chance float64) bool {
	sum := fnv.New64a()
	fmt.Fprintf(sum, "%d/%d/%d/%d", r.seed, r.used, rule, k)
	mixed := sum.Sum64() * 0x9e3779b97f4a7c15 // FNV leaves its last bytes in the low bits
	return float64(mixed>>11)/(1<<53) < chance
}

// Use puts these rules in force instead of all before, the first that matches counting, and begins to count
// their matches anew. It fails with ErrBadRule and then changes nothing.
func (p *Proxy) Use(list ...Rule) error {
	for _, rule := range list {
		if err := rule.check(); err != nil {
			return err
		}
	}
	p.rules.mu.Lock()
	defer p.rules.mu.Unlock()
	p.rules.used++
	p.rules.list, p.rules.matched = list, make([]int, len(list))
	return nil
}

// Faults returns how often each fault happened since New, by name.
func (p *Proxy) Faults() map[string]int {
	p.rules.mu.Lock()
	defer p.rules.mu.Unlock()
	count := make(map[string]int, len(p.rules.done))
	for name, n := range p.rules.done {
		count[name] = n
	}
	return count
}

// answer writes an error as an engine does.
func (v verdict) answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(v.status)
	fmt.Fprintf(w, "{\"message\":%q}\n", v.reason)
}
