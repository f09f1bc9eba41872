package bindings

import "context"

type identityKey struct{}

// WithIdentity says that a request names the resource with an identity, "<resource>:<identity>": nothing else of that
// name will do.
func WithIdentity(ctx context.Context, hash string) context.Context {
	return context.WithValue(ctx, identityKey{}, hash)
}

// IdentityFrom returns the identity that a request names, empty if it names none.
func IdentityFrom(ctx context.Context) string {
	hash, _ := ctx.Value(identityKey{}).(string)
	return hash
}

type boundKey struct{}

// WithBound hands a request on together with what its logical cluster has bound under the name of its resource.
func WithBound(ctx context.Context, bound Bound) context.Context {
	return context.WithValue(ctx, boundKey{}, bound)
}

// BoundFrom returns what WithBound put there.
func BoundFrom(ctx context.Context) (Bound, bool) {
	bound, ok := ctx.Value(boundKey{}).(Bound)
	return bound, ok
}
