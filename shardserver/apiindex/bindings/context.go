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

type boundResourceKey struct{}

// WithBoundResource hands a request on together with what its logical cluster has bound under the name of its resource.
func WithBoundResource(ctx context.Context, bound BoundResource) context.Context {
	return context.WithValue(ctx, boundResourceKey{}, bound)
}

// BoundResourceFrom returns what WithBound put there.
func BoundResourceFrom(ctx context.Context) (BoundResource, bool) {
	bound, ok := ctx.Value(boundResourceKey{}).(BoundResource)
	return bound, ok
}
