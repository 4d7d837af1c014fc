package spec

import "google.golang.org/protobuf/reflect/protoreflect"

// overlay moves every field that is set in over to out. It works on descriptors, so a field that is
// added to CreateSpec is merged without a change here.
func overlay(out, over protoreflect.Message) {
	over.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !field.IsMap() {
			out.Set(field, value)
			return true
		}
		dst := out.Mutable(field).Map()
		value.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
			dst.Set(key, v)
			return true
		})
		return true
	})
}
