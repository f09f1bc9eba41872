// Package dynamic runs the admission that tenants configure: webhooks, and admission policies written in CEL. The
// semantics are upstream's: its webhook plug-ins and policy dispatchers do the work. What lives here is where they get
// their configuration from (the watch cache, for the logical cluster of the request, or for that of the export if the
// resource is bound) and what is kept between requests.
//
// Nothing exists because a logical cluster exists. One without configurations costs a look into the watch cache per
// request. One with configurations has an entry in a cache that is bounded in number and by idle time, and is replaced
// as soon as the configurations change. No goroutine, informer or watch belongs to an entry. Compiled policies are
// shared by all logical clusters that have equal ones.
//
// A tenant's webhook gets no credentials of the shard, is never followed to another address, and cannot make the shard
// read an answer without end.
package dynamic
