package limits_test

import (
	"slices"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/test/servertest"
)

// level is the worst of the findings of one check.
func level(report *agboxv1.DoctorResponse, check string) agboxv1.FindingLevel {
	var worst agboxv1.FindingLevel
	for _, f := range report.GetFindings() {
		if f.Check == check {
			worst = max(worst, f.Level)
		}
	}
	return worst
}

// TestDoctor: everything is looked at, and what is not fine says what mends it.
func TestDoctor(t *testing.T) {
	t.Parallel()
	d := servertest.Start(t)
	report, err := d.Doctor(t.Context(), &agboxv1.DoctorRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var checks []string
	for _, f := range report.Findings {
		checks = append(checks, f.Check)
		if f.Summary == "" || (f.Level == agboxv1.FindingLevel_FINDING_LEVEL_OK) != (f.Remedy == "") {
			t.Errorf("a finding says %v", f)
		}
	}
	for _, check := range []string{"agboxd", "engine", "isolation", "runc", "containerd", "seccomp", "lsm", "read-only", "networks", "live-restore", "ipv6", "disk", "inotify", "orphans"} {
		if !slices.Contains(checks, check) {
			t.Errorf("%s was not examined", check)
		}
	}
	if level(report, "isolation") != agboxv1.FindingLevel_FINDING_LEVEL_OK || level(report, "orphans") != agboxv1.FindingLevel_FINDING_LEVEL_OK {
		t.Errorf("a daemon that has just started finds %v", report)
	}
}
