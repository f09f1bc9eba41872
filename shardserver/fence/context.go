package fence

import "context"

type (
	moverKey  struct{}
	directKey struct{}
)

// WithMover returns a context for the code of a move: the fence does not refuse its writes, and lists and watches over all
// logical clusters include those that the shard does not serve. No request from outside of the process has it.
func WithMover(ctx context.Context) context.Context { return context.WithValue(ctx, moverKey{}, true) }

// IsMover reports whether the context is one of WithMover.
func IsMover(ctx context.Context) bool { return ctx.Value(moverKey{}) != nil }

// WithDirect returns a context for requests of controllers in this process. A refusal has no delay after which the
// client repeats the request, because the client would occupy a worker until then: the controller queues the object again.
func WithDirect(ctx context.Context) context.Context {
	return context.WithValue(ctx, directKey{}, true)
}

func isDirect(ctx context.Context) bool { return ctx.Value(directKey{}) != nil }
