package logicalcluster

import "context"

type contextKey struct{}

// With returns a context whose requests go to the logical cluster.
func With(ctx context.Context, cluster Name) context.Context {
	return context.WithValue(ctx, contextKey{}, cluster)
}

// From returns the logical cluster of the context, and whether it has one.
func From(ctx context.Context) (Name, bool) {
	cluster, ok := ctx.Value(contextKey{}).(Name)
	return cluster, ok && !cluster.Empty()
}

// Annotated is what Of reads: any object with metadata.
type Annotated interface {
	GetAnnotations() map[string]string
}

// Of returns the logical cluster that an object was stored in, or the zero Name for an object that never came out
// of storage. An object that holds its annotations undecoded may tell its cluster by a method LogicalCluster.
func Of(obj Annotated) Name {
	if stored, ok := obj.(interface{ LogicalCluster() string }); ok {
		return Name{stored.LogicalCluster()}
	}
	return Name{obj.GetAnnotations()[AnnotationKey]}
}
