// Package security attacks a real shard and a real front proxy as tenants and strangers would: with requests. A test
// here says what must not be possible, never how it is prevented; the parts prove that themselves.
package security
