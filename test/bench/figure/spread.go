// Package figure is what measured figures become: rows with a median and a ratio, a table, a page, a picture, and what is kept to
// compare with later. It measures nothing.
package figure

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Spread is what several measurements of the same thing say.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Count  int     `json:"count"`
}

// Of returns the spread of values, the zero one of none.
func Of[T cmp.Ordered](values []T, as func(T) float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Spread{Median: as(Percentile(sorted, 50)), Min: as(sorted[0]), Max: as(sorted[len(sorted)-1]), Count: len(sorted)}
}

// Milliseconds returns the spread of times.
func Milliseconds(times []time.Duration) Spread { return Of(times, MS) }

// Numbers returns the spread of what has no unit of its own.
func Numbers(values []float64) Spread { return Of(values, func(v float64) float64 { return v }) }

// MS is a time in milliseconds.
func MS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Percentile returns the smallest of the values that p percent of them do not exceed. They are sorted, and there is one at least.
func Percentile[T any](sorted []T, p float64) T {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
