package test_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a reader can take in: a file of one noun, a package of one subject, a type of one task.
const (
	maxFile    = 400  // lines, as an editor counts them
	maxPackage = 3000 // lines with code: neither blank nor only comment
	maxMethods = 40   // declared, not promoted
)

// others are neither production code nor for tests; what is for tests lies in folders whose names end so.
var others = []string{"cmd/agbox-bench", "cmd/agbox-chaos", "test/bench"}

// wide are types that may have more methods, and why.
var wide = map[string]string{
	"server.Server":             "it has one for each call of the wire",
	"sdk.Client":                "it has one for each thing that a person asks for",
	"actors.System":             "its parts share one state: the fleet's entries",
	"actors/lifecycle.decision": "it has one for each command",
}

// TestSizes: no production code outgrows what can be read. Tests and what is for them, generated code, benches and chaos are
// not production code.
func TestSizes(t *testing.T) {
	t.Parallel()
	packages, methods, total := map[string]int{}, map[string]int{}, 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel("..", path)
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(entry.Name(), ".") || strings.HasSuffix(entry.Name(), "test") || slices.Contains(others, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		if ast.IsGenerated(parsed) {
			return nil
		}
		if lines := bytes.Count(text, []byte("\n")); lines > maxFile {
			t.Errorf("%s has %d lines, more than %d: one noun a file", name, lines, maxFile)
		}
		room := filepath.Dir(name)
		n := codeLines(text)
		packages[room] += n
		total += n
		for _, declaration := range parsed.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv != nil {
				methods[room+"."+receiver(f.Recv.List[0].Type)]++
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for room, lines := range packages {
		if lines > maxPackage {
			t.Errorf("%s has %d lines of code, more than %d: what of it is a room of its own?", room, lines, maxPackage)
		}
	}
	for of := range wide {
		if methods[of] <= maxMethods {
			t.Errorf("%s has %d methods and needs no line in the table", of, methods[of])
		}
	}
	for of, n := range methods {
		if n > maxMethods && wide[of] == "" {
			t.Errorf("%s has %d methods, more than %d: what of it is a type of its own?", of, n, maxMethods)
		}
	}
	t.Logf("%d lines of production code in %d packages", total, len(packages))
}

// codeLines counts the lines that hold a token, comments aside.
func codeLines(text []byte) int {
	files := token.NewFileSet()
	file := files.AddFile("", files.Base(), len(text))
	var scan scanner.Scanner
	scan.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		at, kind, literal := scan.Scan()
		if kind == token.EOF {
			return len(lines)
		}
		if kind == token.SEMICOLON && literal == "\n" { // put in by the scanner
			continue
		}
		first := file.Line(at)
		for line := range 1 + strings.Count(literal, "\n") {
			lines[first+line] = true
		}
	}
}

// receiver is the name of a receiver's type.
func receiver(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return receiver(of.X)
	case *ast.IndexExpr:
		return receiver(of.X)
	case *ast.IndexListExpr:
		return receiver(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}
