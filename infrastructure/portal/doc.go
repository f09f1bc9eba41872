// Package portal is the web page of the infrastructure provider: the catalogue, forms for what it offers, and the instances of a workspace.
//
// The page runs in the browser and talks to the APIs of workspaces on its own origin, with the credentials of the user. This package only
// serves its files, which are built from web/ by "make portal" and committed in dist/. There are no sessions here and no credentials.
package portal
