// Package reflector lists and watches one resource of another server over HTTP and passes every change to a handler,
// until its context ends.
//
// It uses the ListerWatcher of client-go, but is not client-go's Reflector, which differs in three ways that matter for
// resources with many objects and many watching servers:
//   - it collects the whole list before it passes it on, where this one passes each page on as it arrives;
//   - it lists again after many kinds of disconnects, where this one resumes the watch at the last resource version,
//     including one that an earlier reflector has reached, and lists only if the server has compacted that version;
//   - it drops bookmarks and does not report when a watch is open again, where handlers of this one derive from both how
//     current their objects are.
//
// Stores and the interpretation of objects must not be implemented here.
package reflector
