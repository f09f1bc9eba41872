package logicalcluster

import "context"

type contextKey struct{}

// With returns a context for requests to the logical cluster.
func With(ctx context.Context, cluster Name) context.Context {
	return context.WithValue(ctx, contextKey{}, cluster)
}

// From returns the logical cluster of the context, and whether it has one.
func From(ctx context.Context) (Name, bool) {
	cluster, ok := ctx.Value(contextKey{}).(Name)
	return cluster, ok && !cluster.Empty()
}

// Annotated is the part of objects that Of reads.
type Annotated interface {
	GetAnnotations() map[string]string
}

// Of returns the logical cluster that an object was stored in, or the zero Name for an object that does not come from
// storage. An object with undecoded annotations may implement a method LogicalCluster instead.
func Of(obj Annotated) Name {
	if stored, ok := obj.(interface{ LogicalCluster() string }); ok {
		return Name{stored.LogicalCluster()}
	}
	return Name{obj.GetAnnotations()[AnnotationKey]}
}
