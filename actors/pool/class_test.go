package pool_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/agbox-dev/agbox/actors/pool"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestEveryFieldHasARole: what a spec's field means for a sandbox that was made ahead is decided, and is what happens: another value of
// it changes nothing, the class, or rules it out.
func TestEveryFieldHasARole(t *testing.T) {
	t.Parallel()
	same := []string{"copies", "labels", "envs", "idle_ttl", "command", "user", "working_dir", "pull_policy", "max_duration", "on_expiry",
		"on_idle", "on_command_end", "lease", "restart_policy", "wake", "pool"}
	never := []string{"mounts", "builtin_tools", "required_services", "optional_services", "ports", "gpus", "hostname", "lazy"}
	plain, _, whyNot := pool.Fit(&agboxv1.CreateSpec{Image: "image"})
	if whyNot != "" {
		t.Fatal(whyNot)
	}
	fields := (&agboxv1.CreateSpec{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := string(field.Name())
		spec := &agboxv1.CreateSpec{Image: "image"}
		fill(spec.ProtoReflect(), field)
		class, template, whyNot := pool.Fit(spec)
		got := "fixed"
		switch {
		case whyNot != "":
			got = "excludes"
		case class == plain:
			got = "later"
		}
		want := "fixed"
		for _, other := range same {
			if other == name {
				want = "later"
			}
		}
		for _, other := range never {
			if other == name {
				want = "excludes"
			}
		}
		if got != want {
			t.Errorf("%s: %s (%s), want %s", name, got, whyNot, want)
		}
		if want == "excludes" && !strings.Contains(whyNot, name) {
			t.Errorf("%s is ruled out, and the reason does not name it: %s", name, whyNot)
		}
		if want == "later" && !proto.Equal(template, &agboxv1.CreateSpec{Image: "image"}) {
			t.Errorf("%s is left in what one is made from: %v", name, template)
		}
	}
}

// fill gives the field a value.
func fill(message protoreflect.Message, field protoreflect.FieldDescriptor) {
	text := protoreflect.ValueOfString("value")
	switch {
	case field.IsMap():
		message.Mutable(field).Map().Set(text.MapKey(), text)
	case field.IsList() && field.Kind() == protoreflect.MessageKind:
		message.Mutable(field).List().AppendMutable()
	case field.IsList():
		message.Mutable(field).List().Append(text)
	case field.Kind() == protoreflect.MessageKind:
		message.Mutable(field)
	case field.Kind() == protoreflect.StringKind:
		message.Set(field, text)
	case field.Kind() == protoreflect.BoolKind:
		message.Set(field, protoreflect.ValueOfBool(true))
	case field.Kind() == protoreflect.DoubleKind:
		message.Set(field, protoreflect.ValueOfFloat64(0.5))
	default:
		message.Set(field, protoreflect.ValueOfInt64(7))
	}
}

// TestRuledOut: what depends on more than one field is ruled out, too.
func TestRuledOut(t *testing.T) {
	t.Parallel()
	for word, spec := range map[string]*agboxv1.CreateSpec{
		"pool: never":  {Pool: pool.Never},
		"pull_policy":  {PullPolicy: "always"},
		"working_dir":  {ReadOnlyRoot: true, WorkingDir: "/somewhere"},
		"lazy":         {Lazy: true, Envs: map[string]string{"A": "1"}},
		"on nothing":   nil,
		"idle as well": {IdleTtl: durationpb.New(time.Second)},
	} {
		_, _, whyNot := pool.Fit(spec)
		if fits := strings.Contains(word, " nothing") || strings.Contains(word, "as well"); fits != (whyNot == "") || !fits && !strings.Contains(whyNot, word) {
			t.Errorf("%s: %q", word, whyNot)
		}
	}
}
