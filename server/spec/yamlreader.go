package spec

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/docker/go-units"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

var (
	serviceMessage  = (&agboxv1.ServiceSpec{}).ProtoReflect().Descriptor()
	portMessage     = (&agboxv1.PortSpec{}).ProtoReflect().Descriptor()
	durationMessage = (&durationpb.Duration{}).ProtoReflect().Descriptor()
	// acceptedMessage is what the daemon adds to a spec.
	acceptedMessage = (&agboxv1.HostFile{}).ProtoReflect().Descriptor()
)

// sizes are the fields in bytes, which may be written like "512m".
var sizes = []protoreflect.Name{"memory_limit", "disk_limit", "shm_size", "size"}

// yamlReader fills messages from nodes. An anchor is known once what it names has been read, so that an
// alias cannot lead into itself.
type yamlReader struct {
	anchors map[string]ast.Node
	values  int
}

// resolve follows anchors and aliases to the value itself. done must be called when the value has been read.
func (r *yamlReader) resolve(node ast.Node) (value ast.Node, done func(), err error) {
	if r.values++; r.values > maxYAMLValues {
		return nil, nil, refuseAt(ReasonYAMLTooLarge, node.GetToken(), "the aliases expand to more than %d values; repeat less", maxYAMLValues)
	}
	switch n := node.(type) {
	case *ast.AliasNode:
		value, ok := r.anchors[n.Value.GetToken().Value]
		if !ok {
			return nil, nil, refuseAt(ReasonYAMLValue, n.GetToken(), "there is no anchor &%s before this alias; define it first", n.Value.GetToken().Value)
		}
		return value, func() {}, nil
	case *ast.AnchorNode:
		switch n.Value.(type) {
		case nil, *ast.AnchorNode, *ast.AliasNode, *ast.TagNode:
			return nil, nil, refuseAt(ReasonYAMLValue, n.GetToken(), "the anchor &%s names no value of its own; write one after it", n.Name.GetToken().Value)
		}
		return n.Value, func() { r.anchors[n.Name.GetToken().Value] = n.Value }, nil
	case *ast.TagNode:
		return nil, nil, refuseAt(ReasonYAMLValue, n.GetToken(), "tags such as %s are not supported; write the value without it", quote(n.GetToken().Value))
	}
	return node, func() {}, nil
}

// message reads a map with the field names of m as keys, without the field omit.
func (r *yamlReader) message(m protoreflect.Message, name string, node ast.Node, omit protoreflect.Name) error {
	return r.mapping(name, node, func(key string, at *token.Token, value ast.Node) error {
		field := m.Descriptor().Fields().ByTextName(key)
		if field == nil || field.Name() == omit || field.Message() == acceptedMessage {
			return refuseAt(ReasonYAMLUnknownKey, at, "unknown key %s in %s; the keys are %s", quote(key), name, keysOf(m.Descriptor(), omit))
		}
		value, done, err := r.resolve(value)
		if err != nil || value.Type() == ast.NullType {
			return err
		}
		defer done()
		return r.field(m, field, value)
	})
}

func (r *yamlReader) field(m protoreflect.Message, field protoreflect.FieldDescriptor, node ast.Node) error {
	key := string(field.Name())
	switch {
	case field.IsMap():
		entries := m.Mutable(field).Map()
		return r.mapping(key, node, func(k string, _ *token.Token, value ast.Node) error {
			v, err := r.value(key+"."+k, field.MapValue(), entries.NewValue(), value)
			if err == nil {
				entries.Set(protoreflect.ValueOfString(k).MapKey(), v)
			}
			return err
		})
	case field.IsList() && field.Message() == serviceMessage:
		list := m.Mutable(field).List()
		return r.mapping(key, node, func(service string, at *token.Token, value ast.Node) error {
			v := list.NewElement()
			v.Message().Set(serviceMessage.Fields().ByName("name"), protoreflect.ValueOfString(service))
			list.Append(v)
			return r.message(v.Message(), key+"."+service, value, "name")
		})
	case field.IsList():
		list := m.Mutable(field).List()
		sequence, ok := node.(*ast.SequenceNode)
		if !ok {
			return refuseAt(ReasonYAMLValue, node.GetToken(), "%s must be a list; write each item as \"- item\"", key)
		}
		for i, item := range sequence.Values {
			if err := r.item(element(key, i), field, list, item); err != nil {
				return err
			}
		}
		return nil
	}
	v, err := r.value(key, field, m.NewField(field), node)
	if err == nil {
		m.Set(field, v)
	}
	return err
}

// item appends one item of a list. A port may be in the short form, which may mean several.
func (r *yamlReader) item(name string, field protoreflect.FieldDescriptor, list protoreflect.List, node ast.Node) error {
	if field.Message() == portMessage {
		scalar, done, err := r.resolve(node)
		if err != nil {
			return err
		}
		if text, short := scalarText(scalar); short {
			defer done()
			return appendPorts(name, list, scalar, text)
		}
	}
	v, err := r.value(name, field, list.NewElement(), node)
	if err == nil {
		list.Append(v)
	}
	return err
}

// appendPorts appends what text, of node, means in Docker's short form.
func appendPorts(name string, list protoreflect.List, node ast.Node, text string) error {
	ports, err := parsePorts(text)
	if err != nil {
		return refuseAt(ReasonYAMLValue, node.GetToken(), "%s: %v; write it like 8080, \"8080:80\" or \"127.0.0.1:5353:53/udp\"", name, err)
	}
	if list.Len()+len(ports) > maxPorts {
		return refuseAt(ReasonYAMLTooLarge, node.GetToken(), "%s makes more than %d ports; publish fewer", name, maxPorts)
	}
	for _, p := range ports {
		list.Append(protoreflect.ValueOfMessage(p.ProtoReflect()))
	}
	return nil
}

// value reads one value of the field's type; fresh is an unused one of that type, name is for errors.
func (r *yamlReader) value(name string, field protoreflect.FieldDescriptor, fresh protoreflect.Value, node ast.Node) (protoreflect.Value, error) {
	none := protoreflect.Value{}
	if field.Message() != nil && field.Message() != durationMessage {
		return fresh, r.message(fresh.Message(), name, node, "")
	}
	node, done, err := r.resolve(node)
	if err != nil {
		return none, err
	}
	defer done()
	text, ok := scalarText(node)
	wrong := func(want string) (protoreflect.Value, error) {
		return none, refuseAt(ReasonYAMLValue, node.GetToken(), "%s must be %s", name, want)
	}
	switch {
	case field.Message() == durationMessage:
		d, err := time.ParseDuration(text)
		if !ok || err != nil {
			return wrong(`a duration; write it like "90s" or "1h30m", 0 for none`)
		}
		return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), nil
	case field.Kind() == protoreflect.StringKind:
		if !ok {
			return wrong(`a string; write "" for an empty one`)
		}
		return protoreflect.ValueOfString(text), nil
	case field.Kind() == protoreflect.BoolKind:
		if node.Type() != ast.BoolType {
			return wrong("true or false")
		}
		return protoreflect.ValueOfBool(node.(*ast.BoolNode).Value), nil
	case field.Kind() == protoreflect.Uint32Kind:
		n, err := strconv.ParseUint(text, 10, 32)
		if node.Type() != ast.IntegerType || err != nil {
			return wrong(fmt.Sprintf("a whole number from 0 to %d", math.MaxUint32))
		}
		return protoreflect.ValueOfUint32(uint32(n)), nil
	case slices.Contains(sizes, field.Name()):
		n, err := size(node, text)
		if err != nil {
			return wrong(`bytes, as a whole number or like "512m" or "1GiB"`)
		}
		return protoreflect.ValueOfInt64(n), nil
	case field.Kind() == protoreflect.Int64Kind:
		n, err := strconv.ParseInt(text, 10, 64)
		if node.Type() != ast.IntegerType || err != nil {
			return wrong("a whole number")
		}
		return protoreflect.ValueOfInt64(n), nil
	case field.Kind() == protoreflect.DoubleKind:
		f, err := strconv.ParseFloat(text, 64)
		if node.Type() != ast.IntegerType && node.Type() != ast.FloatType || err != nil {
			return wrong("a number such as 2 or 0.5")
		}
		return protoreflect.ValueOfFloat64(f), nil
	}
	return wrong("left out: it cannot be set in YAML")
}

// size is the number of bytes that text, of node, means.
func size(node ast.Node, text string) (int64, error) {
	if node.Type() == ast.IntegerType {
		return strconv.ParseInt(text, 10, 64)
	}
	n, err := units.RAMInBytes(text)
	if node.Type() != ast.StringType || err != nil || n < 0 || n == math.MaxInt64 { // what is too large comes out as either
		return 0, strconv.ErrSyntax
	}
	return n, nil
}

// mapping calls visit for each key of a map in the order of the document.
func (r *yamlReader) mapping(name string, node ast.Node, visit func(key string, at *token.Token, value ast.Node) error) error {
	node, done, err := r.resolve(node)
	if err != nil {
		return err
	}
	defer done()
	if node.Type() == ast.NullType {
		return nil
	}
	m, ok := node.(ast.MapNode)
	if !ok {
		return refuseAt(ReasonYAMLValue, node.GetToken(), "%s must be a map; write \"key: value\" lines", name)
	}
	seen := map[string]bool{}
	for entries := m.MapRange(); entries.Next(); {
		at := entries.Key().GetToken()
		key, ok := scalarText(entries.Key())
		switch {
		case entries.Key().Type() == ast.MergeKeyType:
			return refuseAt(ReasonYAMLUnknownKey, at, "merge keys (<<) are not supported; repeat the keys")
		case !ok:
			return refuseAt(ReasonYAMLValue, at, "a key of %s is not a plain string; write it as one", name)
		case seen[key]:
			return refuseAt(ReasonYAMLDuplicateKey, at, "the key %s is in %s twice; remove one", quote(key), name)
		}
		seen[key] = true
		if err := visit(key, at, entries.Value()); err != nil {
			return err
		}
	}
	return nil
}

// scalarText is the text of a string, number or boolean; numbers and booleans as they are written.
func scalarText(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, utf8.ValidString(n.Value)
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func keysOf(m protoreflect.MessageDescriptor, omit protoreflect.Name) string {
	list := ""
	for i := range m.Fields().Len() {
		field := m.Fields().Get(i)
		if field.Name() == omit || field.Message() == acceptedMessage {
			continue
		}
		if list != "" {
			list += ", "
		}
		list += string(field.Name())
	}
	return list
}
