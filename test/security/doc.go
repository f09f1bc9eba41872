// Package security attacks a real installation, three shards with a cache server and a front proxy, as tenants, strangers and
// servers that were taken over would: with requests. A test here says what must not be possible, never how it is prevented;
// the parts prove that themselves.
package security
