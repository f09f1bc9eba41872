// Package audit is the library behind "kubectl kcp audit": it prints the latest audit events of a workspace, which its shard keeps.
package audit
