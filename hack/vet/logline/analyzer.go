// Package logline reports log lines that differ from the one style of this project, which is that of Kubernetes: a message is a sentence
// without a period, a failed operation is "Failed to ...", and the key of an error is err. Logcheck of Kubernetes, which hack/vet runs,
// too, checks keys and the use of formats.
package logline

import (
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports calls of klog and logr.
var Analyzer = &analysis.Analyzer{
	Name: "logline",
	Doc:  "report messages that are no sentences or do not say \"Failed to ...\", and errors with another key than err",
	Run:  run,
}

// errorKey is the key under which klog and logr log the error of a call.
const errorKey = "err"

// messageAt are the positions of the message by the name of the function; keys and values follow it.
var messageAt = map[string]int{"Info": 0, "InfoS": 0, "Error": 1, "ErrorS": 1}

func run(pass *analysis.Pass) (any, error) {
	for _, file := range pass.Files {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			if at, logs := messageOf(pass, call); logs && len(call.Args) > at {
				checkMessage(pass, call.Args[at])
				checkErrors(pass, call.Args[at+1:])
			}
			return true
		})
	}
	return nil, nil
}

// messageOf returns the position of the message, and whether the call logs in a structured way.
func messageOf(pass *analysis.Pass, call *ast.CallExpr) (at int, logs bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return 0, false
	}
	function, ok := pass.TypesInfo.Uses[selector.Sel].(*types.Func)
	if !ok || function.Pkg() == nil {
		return 0, false
	}
	at, logs = messageAt[function.Name()]
	switch function.Pkg().Path() {
	case "github.com/go-logr/logr":
		return at, logs
	case "k8s.io/klog/v2":
		return at, logs && strings.HasSuffix(function.Name(), "S") // the others format
	}
	return 0, false
}

func checkMessage(pass *analysis.Pass, argument ast.Expr) {
	value := pass.TypesInfo.Types[argument].Value
	if value == nil || value.Kind() != constant.String {
		return
	}
	message := constant.StringVal(value)
	first, _ := utf8.DecodeRuneInString(message)
	switch {
	case unicode.IsLower(first):
		pass.Reportf(argument.Pos(), "message %q: begin with an upper-case letter", message)
	case strings.HasSuffix(message, "."):
		pass.Reportf(argument.Pos(), "message %q: end without a period", message)
	case isFailure(message):
		pass.Reportf(argument.Pos(), "message %q: use Failed to ...", message)
	}
}

// isFailure reports whether a message says in other words than "Failed to" that something has failed.
func isFailure(message string) bool {
	for _, beginning := range []string{"Cannot ", "Can't ", "Could not ", "Error ", "Unable to "} {
		if strings.HasPrefix(message, beginning) {
			return true
		}
	}
	words := strings.FieldsFunc(message, func(r rune) bool { return !unicode.IsLetter(r) })
	return len(words) > 0 && words[0] != "Failed" && slices.Contains(words, "failed")
}

// checkErrors checks the keys of errors among keys and values, also of their texts.
func checkErrors(pass *analysis.Pass, arguments []ast.Expr) {
	for i := 0; i+1 < len(arguments); i += 2 {
		key, value := pass.TypesInfo.Types[arguments[i]].Value, arguments[i+1]
		if call, ok := value.(*ast.CallExpr); ok && len(call.Args) == 0 {
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok && selector.Sel.Name == "Error" {
				value = selector.X
			}
		}
		if key == nil || key.Kind() != constant.String || !isError(pass.TypesInfo.TypeOf(value)) {
			continue
		}
		if got := constant.StringVal(key); got != errorKey {
			pass.Reportf(arguments[i].Pos(), "key %q of an error: use %q", got, errorKey)
		}
	}
}

func isError(t types.Type) bool {
	return t != nil && types.Implements(t, types.Universe.Lookup("error").Type().Underlying().(*types.Interface))
}
