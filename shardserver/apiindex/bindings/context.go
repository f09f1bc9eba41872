package bindings

import "context"

type identityKey struct{}

// WithIdentity stores the identity hash of a request for "<resource>:<identity>", which only a resource bound with this
// identity can serve.
func WithIdentity(ctx context.Context, hash string) context.Context {
	return context.WithValue(ctx, identityKey{}, hash)
}

// IdentityFrom returns the identity hash stored by WithIdentity, or "".
func IdentityFrom(ctx context.Context) string {
	hash, _ := ctx.Value(identityKey{}).(string)
	return hash
}

type boundResourceKey struct{}

// WithBoundResource stores the bound resource that a request is for.
func WithBoundResource(ctx context.Context, bound BoundResource) context.Context {
	return context.WithValue(ctx, boundResourceKey{}, bound)
}

// BoundResourceFrom returns the bound resource stored by WithBoundResource.
func BoundResourceFrom(ctx context.Context) (BoundResource, bool) {
	bound, ok := ctx.Value(boundResourceKey{}).(BoundResource)
	return bound, ok
}
