// Package processlog sets the logger of a process that is a client of API servers: for its own code, and for the libraries that it uses.
package processlog

import (
	"io"
	"os"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Set returns the logger of the process. Lines are JSON, or text for a console; debug adds details for troubleshooting.
func Set(console, debug bool) logr.Logger {
	logger := newLogger(os.Stderr, console, debug)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return logger
}

// newLogger returns a logger with readable times. Errors have a stack only for debug: most of them are responses of servers, and the
// stack is that of the libraries that log them.
func newLogger(to io.Writer, console, debug bool) logr.Logger {
	level, stacks := zapcore.InfoLevel, zapcore.PanicLevel
	if debug {
		level, stacks = zapcore.DebugLevel, zapcore.ErrorLevel
	}
	readable := func(c *zapcore.EncoderConfig) { c.EncodeTime = zapcore.RFC3339NanoTimeEncoder }
	encoder := zap.JSONEncoder(readable)
	if console {
		encoder = zap.ConsoleEncoder(readable)
	}
	return zap.New(zap.WriteTo(to), zap.Level(level), zap.StacktraceLevel(stacks), encoder)
}
