// Package customresources serves what CustomResourceDefinitions of logical clusters define, and what their bindings bind.
//
//	Catalog    which logical cluster has which definitions, and which definitions in system:bound-crds serve what is
//	           bound (package bindings tells); follows all of them through one watch
//	Content    what equal definitions over one storage share (wall W5), in any number of clusters: names, versions, and,
//	           once somebody asked for it, the stock handler with everything it compiles
//	Handler    finds what serves a request's cluster and hands the request to its content
//
// Objects lie in one storage and watch cache per group-resource, and identity for what is bound (wall W3), which package
// raw provides. The life of definitions (conditions, deletion) is the matter of package lifecycle below this one. Discovery
// and OpenAPI are made elsewhere, out of what the Catalog tells.
package customresources
