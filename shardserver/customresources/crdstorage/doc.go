// Package raw stores the objects of definitions (custom resources) as the JSON that etcd holds, once for all logical
// clusters of the shard, and serves reads of them without decoding what nobody looks at.
//
// From below to above:
//
//	Object, List   an object as stored: its bytes, its resource version, the few fields that keys and selectors need
//	Pool, Storage  one storage and watch cache (wall W3) per group-resource and key segment, shared and counted
//	View           storage of one content (equal definitions, wall W5) in one version: what the stock store of custom
//	               resources works on; decodes and encodes with the codec that the stock handler made
//	Reads          GET, LIST and WATCH of a content as JSON, written from the stored bytes wherever a client could not
//	               tell them from what the stock handler answers
//	Metadata       LIST and WATCH of the metadata alone, for which no definition is needed
//
// The logical cluster is that of the context everywhere, put into keys and objects by the storage decorator
// (shardserver/storage). What a definition is, who has which and when a content ends is not known here: that is
// shardserver/customresources.
package crdstorage
