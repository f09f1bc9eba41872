package core

import "context"

type decisionKey struct{}

// WithDecision marks the request of an administrator that changes of a Shard only what administrators decide. All other requests of users to
// write Shards are refused.
func WithDecision(ctx context.Context) context.Context {
	return context.WithValue(ctx, decisionKey{}, true)
}

// IsDecision reports whether WithDecision has marked a request.
func IsDecision(ctx context.Context) bool {
	marked, _ := ctx.Value(decisionKey{}).(bool)
	return marked
}
