// Package processlog sets the logger of a process that is a client of API servers: of its own code, and of the libraries that it uses.
package processlog

import (
	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// Set returns the logger of the process. Lines are JSON, or text for a console; debug adds what is of use to find mistakes.
func Set(console, debug bool) logr.Logger {
	level, encoder := zapcore.InfoLevel, zap.JSONEncoder()
	if debug {
		level = zapcore.DebugLevel
	}
	if console {
		encoder = zap.ConsoleEncoder()
	}
	logger := zap.New(zap.Level(level), encoder)
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	return logger
}
