// Command typednil reports conversions that make an interface value unequal to nil although what it holds is nil. Its
// arguments are patterns of packages. Stock analyzers (nilness, SA4023) follow values within a function; a nil that reaches
// an optional interface field crosses functions.
//
// It reads the export data of dependencies, unlike a tool of `go vet`, which runs for each of them.
package main

import "golang.org/x/tools/go/analysis/singlechecker"

func main() { singlechecker.Main(Analyzer) }
