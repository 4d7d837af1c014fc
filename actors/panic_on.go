//go:build crashpoints

package actors

import (
	"math/rand/v2"
	"os"
	"strconv"
)

var panicChance, _ = strconv.ParseFloat(os.Getenv("AGBOX_PANIC_CHANCE"), 64)

// panicPoint panics in the part of its calls that AGBOX_PANIC_CHANCE names, 0 to 1.
func panicPoint() {
	if rand.Float64() < panicChance {
		panic("AGBOX_PANIC_CHANCE")
	}
}
