package image

import "time"

// SetTimes replaces the limits of a Store that nobody uses yet; 0 leaves one as it is.
func (s *Store) SetTimes(stall, helper time.Duration) {
	if stall > 0 {
		s.stallTime = stall
	}
	if helper > 0 {
		s.helperTime = helper
	}
}

// ReportAll has every change reported.
func (s *Store) ReportAll() { s.reportTime = 0 }
