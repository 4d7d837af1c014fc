package chaos

import "errors"

var (
	// ErrEnded: the daemon ended by itself before it was ready.
	ErrEnded = errors.New("chaos: agboxd ended")
	// ErrNotKilled: something that was to be killed or ended lives.
	ErrNotKilled = errors.New("chaos: it did not end")
	// ErrViolations: the daemon broke its word; the report says how.
	ErrViolations = errors.New("chaos: violations were found")
)
