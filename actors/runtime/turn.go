package runtime

import "context"

// Class is how much work on the runtime matters where there is more of it than can be done at once.
type Class int

const (
	// Person is work that a caller waits for, Refill makes ahead what somebody may ask for, Cleanup takes away what nobody needs.
	Person Class = iota
	Refill
	Cleanup
)

func (c Class) String() string {
	switch c {
	case Refill:
		return "refill"
	case Cleanup:
		return "cleanup"
	}
	return "person"
}

// Turn is what the order of work on the runtime depends on: owners take turns, however much each of them asks for.
type Turn struct {
	Class Class
	Owner string
}

type turnKey struct{}

// WithTurn has what is asked of the runtime with the context be done in such a turn; without, it is a person's of no name.
func WithTurn(ctx context.Context, turn Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, turn)
}

// TurnOf is what WithTurn was given.
func TurnOf(ctx context.Context) Turn {
	turn, _ := ctx.Value(turnKey{}).(Turn)
	return turn
}

// Work is how much of the runtime's work is being done, and waits, by class.
type Work struct {
	Slots            int
	Running, Waiting map[Class]int
}
