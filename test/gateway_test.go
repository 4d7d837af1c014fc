package test_test

import (
	"testing"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"

	"github.com/agbox-dev/agbox/gateway/access"
)

// TestEveryCallHasARule: a call that is new, or a field of a create spec, is not let through by having been forgotten.
func TestEveryCallHasARule(t *testing.T) {
	t.Parallel()
	methods := agboxv1.File_agbox_v1_agbox_proto.Services().ByName("SandboxService").Methods()
	known := access.Known().Calls
	for i := range methods.Len() {
		name := string(methods.Get(i).Name())
		if !known[name] {
			t.Errorf("%s has no row in gateway/access/rules.go: say there whose it may be about", name)
		}
		delete(known, name)
	}
	for name := range known {
		t.Errorf("rules.go has a row for %s, which is no call", name)
	}
	for message, known := range access.Known().Fields {
		fields := agboxv1.File_agbox_v1_agbox_proto.Messages().ByName(message).Fields()
		for i := range fields.Len() {
			name := fields.Get(i).Name()
			if !known[name] {
				t.Errorf("%s.%s has no row in gateway/access/create.go: say there what a token needs to set it", message, name)
			}
			delete(known, name)
		}
		for name := range known {
			t.Errorf("create.go has a row for %s.%s, which is no field", message, name)
		}
	}
}
