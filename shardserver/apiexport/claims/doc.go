// Package claims sees to it that objects which a provider may see by a permission claim carry that claim's label, and no
// others do: the index that admission asks about every write, and the labeler that brings objects in line when a claim is
// accepted, rejected, or gets another selector.
//
// What a claim is, and what its label is called, is known by package apiexport. That only labelled objects are shown to
// the provider is the matter of the virtual workspace.
package claims
