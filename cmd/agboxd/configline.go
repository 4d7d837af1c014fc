package main

import (
	"regexp"
	"strings"

	"github.com/pelletier/go-toml/v2/unstable"
)

// keyForm finds the keys that a message about the configuration names.
var keyForm = regexp.MustCompile(`\b[a-z]+\.[a-z_]+\b`)

// lineOf returns the line of the first key of the message that the configuration sets, 0 when it sets none of them.
func lineOf(text []byte, message string) int {
	lines := keyLines(text)
	for _, key := range keyForm.FindAllString(message, -1) {
		for ; key != ""; key = parent(key) { // what stands in an inline table has its line
			if line := lines[key]; line > 0 {
				return line
			}
		}
	}
	return 0
}

func parent(key string) string {
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		return key[:i]
	}
	return ""
}

// keyLines are the lines of all that a valid configuration sets, by dotted key.
func keyLines(text []byte) map[string]int {
	lines := map[string]int{}
	var parser unstable.Parser
	parser.Reset(text)
	var table []string
	for parser.NextExpression() {
		expression := parser.Expression()
		var key []string
		line := 0
		for parts := expression.Key(); parts.Next(); {
			key = append(key, string(parts.Node().Data))
			if line == 0 {
				line = parser.Shape(parts.Node().Raw).Start.Line
			}
		}
		if expression.Kind == unstable.KeyValue {
			lines[strings.Join(append(table[:len(table):len(table)], key...), ".")] = line
		} else {
			table = key
		}
	}
	return lines
}
