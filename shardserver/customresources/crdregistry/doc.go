// Package crdregistry keeps what logical clusters serve besides built-in resources: resources of their own
// CustomResourceDefinitions, and resources that they bind from exports, whose definitions are in system:bound-crds.
//
//	Registry     the definitions of all logical clusters, kept current by one informer; implements storage.CustomResourceResolver
//	CompiledCRD  what equal definitions over one storage share, in any number of logical clusters: names, versions, and
//	             the handlers, which a Compiler creates on first use
//	Lease        what one request uses: a CompiledCRD with its storage, kept open until the lease is released
//	Instances    the objects of one resource in one logical cluster, below the API
//
// Package crdhandler serves requests with it, package crdstorage stores the objects. The status and the deletion of
// definitions are the matter of package lifecycle/customresourcedefinitions; discovery and OpenAPI are built by the
// packages of those names from what Registry.Served returns.
package crdregistry
