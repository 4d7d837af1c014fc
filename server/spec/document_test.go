package spec_test

import (
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
	"github.com/agbox-dev/agbox/server/spec"
)

// The page for people names every field, and its example is a spec.
func TestDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/spec.md")
	if err != nil {
		t.Fatal(err)
	}
	var check func(m protoreflect.MessageDescriptor)
	check = func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			field := m.Fields().Get(i)
			if field.Message() == (&agboxv1.HostFile{}).ProtoReflect().Descriptor() {
				continue // the daemon's own
			}
			name := string(field.Name())
			// A service's name is its key.
			if name != "name" && !strings.Contains(string(page), "`"+name+"`") && !strings.Contains(string(page), "`network."+name+"`") {
				t.Errorf("%s is not explained", field.FullName())
			}
			if field.Message() != nil && !field.IsMap() && field.Message().ParentFile() == m.ParentFile() {
				check(field.Message())
			}
		}
	}
	check((&agboxv1.CreateSpec{}).ProtoReflect().Descriptor())

	_, rest, _ := strings.Cut(string(page), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("no example")
	}
	m := newMachine(t)
	example = strings.NewReplacer("/home/ann/project", m.path("proj"), "/home/ann/templates", m.path("proj")).Replace(example)
	got, err := spec.Resolve(&agboxv1.CreateSandboxRequest{ConfigYaml: []byte(example)}, m.host())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Spec.RequiredServices) != 1 || len(got.Spec.Ports) != 2 || got.Spec.MemoryLimit != 2<<30 {
		t.Errorf("got %v", got.Spec)
	}
}
