// Package contract goes through what kcp's clients rely on, one request a row: who asks what, at the shard and through
// the front proxy, and what the answer is. The rows name the part of the contract that they are from: URL space,
// logical clusters, workspaces, authorization, admission, resources, status codes. Behaviour that takes more than one
// request to see has tests next to the code; what is here is what a client sees from outside, against the real binaries.
package contract
