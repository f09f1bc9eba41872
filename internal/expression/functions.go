package expression

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// sprigFunctions are the functions of sprig that are pure and terminate soon. They do not include functions that access the environment
// (env, expandenv), the network (getHostByName), the clock (now, date, ...) or randomness (randAlpha, uuidv4, genPrivateKey, ...), that
// are intentionally expensive (bcrypt, derivePassword, ...), and that change their arguments (set, unset, merge, ...): these could change
// the object itself, or create a cycle.
var sprigFunctions = strings.Fields(`
	abbrev abbrevboth trunc trim upper lower title untitle substr trimall trimAll trimSuffix trimPrefix nospace initials swapcase
	snakecase camelcase kebabcase wrap contains hasPrefix hasSuffix quote squote cat plural
	sha1sum sha256sum sha512sum adler32sum toString atoi int64 int float64 toDecimal
	split splitList splitn toStrings add1 add sub div mod mul add1f addf subf divf mulf biggest max min maxf minf ceil floor round
	sortAlpha default empty coalesce all any compact mustCompact fromJson toJson toRawJson mustFromJson mustToJson
	mustToRawJson ternary deepCopy mustDeepCopy typeOf typeIs typeIsLike kindOf kindIs deepEqual
	base dir clean ext isAbs osBase osClean osDir osExt osIsAbs b64enc b64dec b32enc b32dec
	tuple list dict get hasKey pluck keys pick omit values append push mustAppend mustPush prepend mustPrepend
	first mustFirst rest mustRest last mustLast initial mustInitial reverse mustReverse without mustWithout has mustHas
	slice mustSlice concat dig chunk mustChunk semver semverCompare fail duration
	regexMatch mustRegexMatch regexFindAll mustRegexFindAll regexFind mustRegexFind regexSplit mustRegexSplit regexQuoteMeta
	urlParse urlJoin`)

// functions are all functions of templates except those of Go. None returns more than maxText bytes or elements.
var functions = sync.OnceValue(func() template.FuncMap {
	upstream := sprig.TxtFuncMap()
	result := template.FuncMap{
		"sha3sum": sha3sum, "sha3short": sha3short, "shortHash": shortHash,
		countFunction: newBudget(), // replaced before each execution
	}
	for _, name := range sprigFunctions {
		result[name] = limitResult(upstream[name])
	}
	for name, fn := range boundedFunctions(upstream) {
		result[name] = limitResult(fn)
	}
	return result
})

var errorType = reflect.TypeFor[error]()

// limitResult returns a function with the same parameters that returns an error if the result is too large.
func limitResult(fn any) any {
	original := reflect.ValueOf(fn)
	signature := original.Type()
	parameters := make([]reflect.Type, signature.NumIn())
	for i := range parameters {
		parameters[i] = signature.In(i)
	}
	limited := reflect.FuncOf(parameters, []reflect.Type{signature.Out(0), errorType}, signature.IsVariadic())
	return reflect.MakeFunc(limited, func(arguments []reflect.Value) []reflect.Value {
		call := original.Call
		if signature.IsVariadic() {
			call = original.CallSlice
		}
		results := call(arguments)
		if len(results) == 2 && !results[1].IsNil() {
			return results
		}
		return []reflect.Value{results[0], checkSize(results[0])}
	}).Interface()
}

// checkSize returns an error, or nil, as a value.
func checkSize(value reflect.Value) reflect.Value {
	failed := reflect.Zero(errorType)
	for value.Kind() == reflect.Interface && !value.IsNil() {
		value = value.Elem()
	}
	switch value.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		if value.Len() > maxText {
			return reflect.ValueOf(fmt.Errorf("the result has %d elements, more than %d", value.Len(), maxText))
		}
	}
	return failed
}
