package figure

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Slack is how much worse than the kept one a ratio may be: machines are noisy, and a change that costs less than that is not
// told from noise.
const Slack = 1.25

// Kept are ratios by the key of their row.
type Kept map[string]float64

// ParseKept reads what Encode wrote.
func ParseKept(data []byte) (Kept, error) {
	var k Kept
	if err := json.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("the kept ratios cannot be read: %w: write them anew with -keep", err)
	}
	return k, nil
}

// Encode is a file of them, in the order of the keys.
func (k Kept) Encode() []byte {
	data, _ := json.MarshalIndent(k, "", "  ") // of strings and finite numbers
	return append(data, '\n')
}

// Keep takes over the ratios of a report, and leaves those of rows that it does not have.
func (k Kept) Keep(r *Report) {
	for _, row := range r.Rows {
		if ratio := row.Ratio(); ratio > 0 {
			k[row.Key] = ratio
		}
	}
}

// Check says what is worse than it was, one line for each, in the order of the keys. What the report was not to measure is not
// missed: wanted says which rows were.
func (k Kept) Check(r *Report, wanted func(key string) bool) []string {
	ratios := Kept{}
	ratios.Keep(r)
	var worse []string
	for _, key := range slices.Sorted(maps.Keys(k)) {
		ratio, measured := ratios[key]
		switch {
		case measured && ratio > k[key]*Slack:
			worse = append(worse, fmt.Sprintf("%s: %s, and it was %s: more than %.0f %% worse", key, ratioText(ratio), ratioText(k[key]), (Slack-1)*100))
		case !measured && wanted(key):
			worse = append(worse, fmt.Sprintf("%s: not measured, and it was %s", key, ratioText(k[key])))
		}
	}
	return worse
}
