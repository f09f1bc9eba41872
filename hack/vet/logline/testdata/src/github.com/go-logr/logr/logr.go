// Package logr has the signatures of the module of this name.
package logr

type Logger struct{}

func (Logger) Info(msg string, keysAndValues ...any)             {}
func (Logger) Error(err error, msg string, keysAndValues ...any) {}
