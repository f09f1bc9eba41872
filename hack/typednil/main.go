// Command typednil reports conversions that make an interface value unequal to nil although what it holds is nil. It runs
// as `go vet -vettool`. Stock analyzers (nilness, SA4023) follow values within a function; a nil that reaches an optional
// interface field crosses functions.
package main

import "golang.org/x/tools/go/analysis/unitchecker"

func main() { unitchecker.Main(Analyzer) }
