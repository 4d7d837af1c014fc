package agboxv1_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// additions is where our own fields and enum values begin.
const additions = 64

// TestContract holds the compiled contract against testdata/contract.txt, which is the wire contract that clients
// written by others were built on: what is there must be here to the number, and what is not must be an addition.
func TestContract(t *testing.T) {
	text, err := os.ReadFile("testdata/contract.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	got := describe(agboxv1.File_agbox_v1_agbox_proto)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing or changed: %s", line)
		}
	}
	for _, line := range got {
		words := strings.SplitN(line, " ", 3) // kind, name, rest
		known := func(in string) bool { return strings.HasPrefix(in, words[0]+" "+words[1]+" ") }
		if !slices.Contains(want, line) && words[0] != "rpc" && slices.ContainsFunc(want, known) {
			t.Errorf("not in the contract, and below %d: %s", additions, line)
		}
	}
}

// describe lists everything with a number below additions, in the notation of contract.txt. Messages that the
// contract does not know at all are free.
func describe(file protoreflect.FileDescriptor) []string {
	var list []string
	for method := range all(file.Services().Get(0).Methods()) {
		stream := ""
		if method.IsStreamingServer() {
			stream = "stream "
		}
		list = append(list, fmt.Sprintf("rpc %s(%s) %s%s", method.Name(), method.Input().Name(), stream, method.Output().Name()))
	}
	for enum := range all(file.Enums()) {
		for value := range all(enum.Values()) {
			if value.Number() < additions {
				list = append(list, fmt.Sprintf("enum %s %s = %d", enum.Name(), value.Name(), value.Number()))
			}
		}
	}
	for message := range all(file.Messages()) {
		for field := range all(message.Fields()) {
			if field.Number() < additions {
				list = append(list, fmt.Sprintf("message %s %d %s %s", message.Name(), field.Number(), field.Name(), kind(field)))
			}
		}
	}
	return list
}

func kind(field protoreflect.FieldDescriptor) string {
	name := field.Kind().String()
	switch {
	case field.Message() != nil:
		name = string(field.Message().Name())
	case field.Enum() != nil:
		name = string(field.Enum().Name())
	}
	switch {
	case field.IsMap():
		return fmt.Sprintf("map<%s,%s>", field.MapKey().Kind(), field.MapValue().Kind())
	case field.IsList():
		return "repeated " + name
	case field.HasOptionalKeyword():
		return "optional " + name
	case field.ContainingOneof() != nil:
		return name + " in " + string(field.ContainingOneof().Name())
	}
	return name
}

func all[T any](list interface {
	Len() int
	Get(int) T
}) func(func(T) bool) {
	return func(yield func(T) bool) {
		for i := range list.Len() {
			if !yield(list.Get(i)) {
				return
			}
		}
	}
}
