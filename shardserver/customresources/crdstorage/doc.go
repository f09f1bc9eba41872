// Package crdstorage stores custom resources as the JSON that is in etcd, in one storage for all logical clusters of the
// shard, and serves reads from the stored bytes.
//
// Bottom up:
//
//	Object, List   an object as stored: its bytes, its resource version, and the fields for keys and selectors
//	Pool, Storage  one storage and watch cache per group-resource and key segment, reference-counted
//	View           the storage of one compiled CRD in one version, for the upstream store of custom resources: decodes
//	               and encodes with the codec of the upstream handler
//	Reads          GET, LIST and WATCH of a compiled CRD as JSON, from the stored bytes, with the same responses as the
//	               upstream handler
//	Metadata       LIST and WATCH of the metadata, without a definition
//
// The logical cluster is that of the context. The storage decorator (shardserver/storage) puts it into keys and objects.
// Definitions, and which logical cluster has which, are the matter of package crdregistry.
package crdstorage
