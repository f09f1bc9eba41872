// Package portal is the web page of the infrastructure provider: the catalogue, forms for its templates, and the instances of a workspace.
//
// The page runs in the browser and calls the APIs of workspaces on its own origin, with the credentials of the user. This package only
// serves its files, which "make portal" builds from web/ and which are committed in dist/. It has no sessions and no credentials.
package portal
