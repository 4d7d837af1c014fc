package actors

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/agbox-dev/agbox/actors/lifecycle"
	journalv1 "github.com/agbox-dev/agbox/proto/agbox/journal/v1"
	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// TestCheckpointHasEveryField: what is restored is the state, field by field, also in fields that come later.
func TestCheckpointHasEveryField(t *testing.T) {
	var state lifecycle.State
	value := reflect.ValueOf(&state).Elem()
	for i := range value.NumField() {
		fill(t, value.Type().Field(i).Name, value.Field(i))
	}
	state.SandboxID = "box-1"
	written, err := proto.Marshal(checkpoint(state))
	if err != nil {
		t.Fatal(err)
	}
	read := &journalv1.Checkpoint{}
	if err := proto.Unmarshal(written, read); err != nil {
		t.Fatal(err)
	}
	restored := reflect.ValueOf(restore("box-1", read))
	for i := range value.NumField() {
		name, want, got := value.Type().Field(i).Name, value.Field(i).Interface(), restored.Field(i).Interface()
		if name == "Ports" {
			ports := got.([]*agboxv1.PublishedPort)
			if len(ports) != 1 || !proto.Equal(ports[0], state.Ports[0]) {
				t.Errorf("%s: %v came back as %v", name, want, got)
			}
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v came back as %v", name, want, got)
		}
	}
}

// fill sets a field to something that is not its zero.
func fill(t *testing.T, name string, field reflect.Value) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 7, time.UTC)
	switch field.Interface().(type) {
	case time.Time:
		field.Set(reflect.ValueOf(at))
		return
	case []*agboxv1.PublishedPort:
		field.Set(reflect.ValueOf([]*agboxv1.PublishedPort{{ContainerPort: 80}}))
		return
	}
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.String:
		field.SetString(name)
	case reflect.Int, reflect.Int32, reflect.Int64:
		field.SetInt(1)
	case reflect.Uint32, reflect.Uint64:
		field.SetUint(1)
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
		fill(t, name, field.Elem())
	case reflect.Map:
		element := reflect.New(field.Type().Elem()).Elem()
		fill(t, name, element)
		field.Set(reflect.MakeMap(field.Type()))
		field.SetMapIndex(reflect.ValueOf("key"), element)
	default:
		t.Fatalf("field %s is of a kind that this test does not know", name)
	}
}
