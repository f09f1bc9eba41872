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
