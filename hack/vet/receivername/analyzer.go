// Package receivername reports receivers whose names are not of their types: a type that is renamed often leaves the letter of its
// previous name behind. ST1016 of staticcheck only compares the receivers of a type with each other.
package receivername

import (
	"go/ast"
	"strings"
	"unicode"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports the receivers of methods, those of generated files excepted, whose names do not fit.
var Analyzer = &analysis.Analyzer{
	Name: "receivername",
	Doc:  "report receivers that are no abbreviation of the name of their type",
	Run:  run,
}

func run(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		if ast.IsGenerated(file) {
			continue
		}
		for _, declaration := range file.Decls {
			method, ok := declaration.(*ast.FuncDecl)
			if !ok || method.Recv == nil || len(method.Recv.List[0].Names) == 0 {
				continue
			}
			receiver, typeName := method.Recv.List[0].Names[0], nameOf(method.Recv.List[0].Type)
			if receiver.Name != "_" && typeName != "" && !fits(receiver.Name, typeName) {
				pass.Reportf(receiver.Pos(), "receiver %s of type %s: use the beginning of the type's name, or of one of its words, or its initials", receiver.Name, typeName)
			}
		}
	}
	return nil, nil
}

// nameOf returns the name of the type of a receiver, without its type parameters; "" if the syntax has none.
func nameOf(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.ParenExpr:
		return nameOf(e.X)
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.IndexListExpr:
		return nameOf(e.X)
	}
	return ""
}

// fits reports whether a receiver's name is the beginning of the type's name from one of its words on, or some of its initials.
func fits(receiver, typeName string) bool {
	var initials strings.Builder
	letters := []rune(typeName)
	for i, letter := range letters {
		if !beginsWord(letters, i) {
			continue
		}
		initials.WriteRune(unicode.ToLower(letter))
		if strings.HasPrefix(strings.ToLower(string(letters[i:])), strings.ToLower(receiver)) {
			return true
		}
	}
	return strings.Contains(initials.String(), receiver)
}

// beginsWord reports whether a word begins at a letter: the first one, an upper-case letter after another one, or the last of several
// upper-case letters, as the S in APIServer.
func beginsWord(letters []rune, i int) bool {
	if i == 0 {
		return true
	}
	if !unicode.IsUpper(letters[i]) {
		return false
	}
	return !unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1])
}
