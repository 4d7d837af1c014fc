package spec

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	agboxv1 "github.com/agbox-dev/agbox/proto/agbox/v1"
)

// Bounds of a document. The parser's time grows with the square of the nesting, so nesting is counted on
// the tokens, before it runs. Aliases are counted where they lead: maxYAMLValues is reached by expansion only.
const (
	maxYAMLBytes  = 1 << 20
	maxYAMLTokens = 20_000
	maxYAMLDepth  = 16
	maxYAMLValues = 100_000
)

const yamlField = "config_yaml"

// ParseYAML reads one strict YAML document with the keys of CreateSpec; an empty one is an empty spec.
// Services are maps by name and come in the order of the document, durations are Go duration strings,
// numbers and booleans in the place of strings are taken as written. What the spec means is not
// validated. The error is an *Error on config_yaml with the line in its message and metadata.
func ParseYAML(document []byte) (spec *agboxv1.CreateSpec, err error) {
	// A document that makes the parser fall over is refused like any other that it cannot read.
	defer func() {
		if p := recover(); p != nil {
			spec, err = nil, refuse(ReasonYAMLSyntax, yamlField, "the document cannot be parsed; simplify it")
		}
	}()
	spec = &agboxv1.CreateSpec{}
	root, err := parseDocument(document)
	if err != nil {
		return nil, err
	}
	if root == nil {
		return spec, nil
	}
	r := &yamlReader{anchors: map[string]ast.Node{}}
	if err := r.message(spec.ProtoReflect(), "the document", root, ""); err != nil {
		return nil, err
	}
	return spec, nil
}

// parseDocument returns the one document's root, nil when there is none.
func parseDocument(document []byte) (root ast.Node, err error) {
	if len(document) > maxYAMLBytes {
		return nil, refuse(ReasonYAMLTooLarge, yamlField, "%d bytes are more than %d; move large values into files and mount these", len(document), maxYAMLBytes)
	}
	if !utf8.Valid(document) {
		return nil, refuse(ReasonYAMLSyntax, yamlField, "the document is not UTF-8; save it as UTF-8")
	}
	tokens := lexer.Tokenize(string(document))
	if err := boundTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // refused by the reader, with a reason of their own
	if err != nil {
		return nil, syntaxError(err)
	}
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.CommentType:
		case root != nil:
			return nil, refuseAt(ReasonYAMLSyntax, doc.Body.GetToken(), "a second document begins here; send one")
		default:
			root = doc.Body
		}
	}
	return root, nil
}

func boundTokens(tokens token.Tokens) error {
	if len(tokens) > maxYAMLTokens {
		return refuse(ReasonYAMLTooLarge, yamlField, "the document has more than %d words and signs; move large values into files and mount these", maxYAMLTokens)
	}
	line, flow, nested, documents := 0, 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, nested = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.AnchorType, token.TagType:
			nested++
		case token.MappingValueType, token.AliasType:
			if flow == 0 {
				nested++
			}
		case token.DocumentHeaderType:
			documents++
		}
		if flow > maxYAMLDepth || nested > maxYAMLDepth {
			return refuseAt(ReasonYAMLTooLarge, t, "the nesting is deeper than %d; a spec needs no more than 6", maxYAMLDepth)
		}
		if documents > 1 {
			return refuseAt(ReasonYAMLSyntax, t, "a second document begins here; send one")
		}
	}
	return nil
}

func syntaxError(err error) error {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		return refuseAt(ReasonYAMLSyntax, at.GetToken(), "%s; correct the YAML there", at.GetMessage())
	}
	return refuse(ReasonYAMLSyntax, yamlField, "%v; correct the YAML", err)
}

func refuseAt(reason string, at *token.Token, format string, args ...any) error {
	if at == nil || at.Position == nil {
		return refuse(reason, yamlField, format, args...)
	}
	err := refuse(reason, yamlField, "line %d, column %d: %s", at.Position.Line, at.Position.Column, fmt.Sprintf(format, args...))
	err.Metadata = map[string]string{"line": strconv.Itoa(at.Position.Line), "column": strconv.Itoa(at.Position.Column)}
	return err
}
