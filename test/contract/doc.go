// Package contract checks the behaviour that kcp's clients rely on, one request per row: the user, the request to the
// shard and through the front proxy, and the expected response. Each row names its section of the contract: URL space,
// logical clusters, workspaces, authorization, admission, resources, status codes. Tests next to the code cover
// behaviour that takes more than one request; this package covers what a client observes from outside, against the real
// binaries.
package contract
