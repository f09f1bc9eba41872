// Package backends sends requests of users to the backends of custom subresources, which are servers of providers.
//
// A provider chooses the address. Therefore requests go only to servers with a certificate of the CA that the operator of the shard
// names for backends, have headers of an allow-list only, and carry a client certificate of its own that is no identity of this shard
// anywhere. The certificate lets a backend trust the headers that name the caller. Responses have headers of an allow-list, redirects
// are refused.
//
// Which request goes to which address is decided elsewhere (package virtualstorage).
package backends
