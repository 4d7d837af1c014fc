package sdk

import (
	"context"
	"strings"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// FindingLevel is how much a finding matters.
type FindingLevel string

const (
	FindingOK      FindingLevel = "OK"
	FindingWarning FindingLevel = "WARNING" // it works, and is weaker or nearer to its end than it should be
	FindingProblem FindingLevel = "PROBLEM" // something that is promised does not hold
)

// Finding is one thing that the daemon has examined.
type Finding struct {
	Check   string // a word that stays the same, such as "disk"
	Level   FindingLevel
	Summary string
	Remedy  string // what mends it, "" where nothing has to be
}

// Doctor has the daemon examine what it runs on and what it holds.
func (c *Client) Doctor(ctx context.Context) ([]Finding, error) {
	resp, err := c.raw.Doctor(ctx, &agboxv1.DoctorRequest{})
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, p := range resp.GetFindings() {
		findings = append(findings, Finding{Check: p.GetCheck(), Summary: p.GetSummary(), Remedy: p.GetRemedy(),
			Level: FindingLevel(strings.TrimPrefix(p.GetLevel().String(), "FINDING_LEVEL_"))})
	}
	return findings, nil
}
