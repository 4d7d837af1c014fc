package spec_test

import (
	"os"
	"strings"
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// TestCopyRefusals: what hosttree refuses has a reason and a field here. TestRefusals has the usual ones.
func TestCopyRefusals(t *testing.T) {
	tests := []struct {
		name, reason, part string
		make               func(m *machine)
	}{
		{"too deep", spec.ReasonCopyTooLarge, "directories below", func(m *machine) { m.dir("proj" + strings.Repeat("/d", 300)) }},
		{"a path that is too long", spec.ReasonSourceUnreadable, "file name too long", func(m *machine) {
			name := strings.Repeat("x", 250)
			at, err := os.OpenRoot(m.path("proj"))
			m.must(err)
			defer func() { at.Close() }()
			for range 17 {
				m.must(at.Mkdir(name, 0o755))
				inner, err := at.OpenRoot(name)
				m.must(err)
				at.Close()
				at = inner
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t)
			tt.make(m)
			_, err := m.resolve(&agboxv1.CreateSpec{Image: "x", Copies: []*agboxv1.CopySpec{{Source: m.path("proj"), Target: "/x"}}})
			wantRefusal(t, err, tt.reason, "create_spec.copies[0].source", tt.part)
		})
	}
}
