// Package klog has the signatures of the module of this name.
package klog

func Info(args ...any)                                   {}
func InfoS(msg string, keysAndValues ...any)             {}
func ErrorS(err error, msg string, keysAndValues ...any) {}
