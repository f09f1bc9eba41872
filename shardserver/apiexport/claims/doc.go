// Package claims labels objects that a provider may see by a permission claim, and removes the labels of other objects.
// Index returns the labels that admission sets in every write; the controller relabels existing objects when a claim is
// accepted, rejected, or gets another selector; Repairer relabels objects that were written meanwhile; Releaser removes
// the labels of a binding that is being deleted.
//
// Package apiindex defines claims and their labels. The package must not filter requests: showing only labelled objects
// to the provider is for package virtual/apiexport.
package claims
