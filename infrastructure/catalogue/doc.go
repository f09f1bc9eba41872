// Package catalogue brings up the workspace of the provider: the definition of Templates, the export, who may bind it, and the
// publication of Templates to those who have bound it.
package catalogue
