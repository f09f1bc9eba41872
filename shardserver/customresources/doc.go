// Package customresources serves what CustomResourceDefinitions of logical clusters define.
//
//	Catalog    which logical cluster has which definitions; follows all of them through one watch
//	Content    what equal definitions of any number of clusters share (wall W5): names, versions, and, once somebody
//	           asked for it, the stock handler with everything it compiles
//	Handler    finds the definition of a request's cluster and hands the request to its content
//
// Objects lie in one storage and watch cache per group-resource (wall W3), which package raw provides. The life of
// definitions (conditions, deletion) is the matter of package lifecycle below this one. Discovery and OpenAPI are made
// elsewhere, out of what the Catalog tells.
package customresources
