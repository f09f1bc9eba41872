package example

import (
	"errors"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

var err = errors.New("broken")

func lines(log logr.Logger, name string, text string) {
	log.Info("Starting", "name", name)
	log.Info("starting", "name", name)               // want `begin with an upper-case letter`
	log.Info("Starting.")                            // want `end without a period`
	log.Info(text, "name", name)                     // the message is known at run time only
	log.Error(err, "Failed to read an object")       // an error has no key
	log.Error(err, "Cannot read an object")          // want `use Failed to`
	log.Error(err, "Reading failed, will retry")     // want `use Failed to`
	klog.ErrorS(err, "Ignoring an invalid object")   // it says what happens next
	klog.ErrorS(nil, "could not read", "name", name) // want `begin with an upper-case letter`
	klog.InfoS("Failed to read, will retry", "err", err)
	klog.InfoS("Waiting", "reason", err)        // want `key "reason" of an error: use "err"`
	klog.InfoS("Waiting", "error", err.Error()) // want `key "error" of an error: use "err"`
	klog.InfoS("Waiting", "reason", "no answer")
	klog.Info("any text")
}
