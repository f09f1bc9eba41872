package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"k8s.io/utils/ptr"

	"github.com/atoll-dev/atoll/infrastructure/web"
)

// call is a call of a tool.
type call struct {
	*client
	server    *server
	request   *sdk.CallToolRequest
	workspace string
}

// arguments is the interface of the arguments of all tools.
type arguments interface {
	workspace() (string, error)
}

// waiter is the interface of the arguments of tools that can wait: wait returns how long, in addition to the timeout.
type waiter interface{ wait() time.Duration }

// tool defines a tool. Its function run returns a result and a sentence about it.
type tool[In arguments, Out any] struct {
	name, title, description string
	annotations              sdk.ToolAnnotations
	// attempt describes what the tool tries to do, for errors.
	attempt func(In) string
	run     func(context.Context, *call, In) (Out, string, error)
}

func (s *server) addTools(protocol *sdk.Server) error {
	return errors.Join(
		add(s, protocol, listTemplates), add(s, protocol, describeTemplate), add(s, protocol, provision),
		add(s, protocol, listInstances), add(s, protocol, getInstance), add(s, protocol, updateInstance), add(s, protocol, deleteInstance),
	)
}

func add[In arguments, Out any](s *server, protocol *sdk.Server, t tool[In, Out]) error {
	schema, err := inputSchema[In]()
	if err != nil {
		return fmt.Errorf("tool %s: %w", t.name, err)
	}
	t.annotations.Title, t.annotations.OpenWorldHint = t.title, ptr.To(false)
	sdk.AddTool(protocol, &sdk.Tool{Name: "infrastructure__" + t.name, Title: t.title, Description: t.description, Annotations: &t.annotations, InputSchema: schema},
		func(ctx context.Context, request *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
			out, sentence, workspace, err := t.call(ctx, s, request, in)
			if err != nil {
				return nil, out, s.explain("Failed to "+t.attempt(in), workspace, err)
			}
			text, err := json.Marshal(out)
			if err != nil {
				return nil, out, err
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: sentence}, &sdk.TextContent{Text: string(text)}}}, out, nil
		})
	return nil
}

// call runs a tool in the workspace of its arguments with the token of the request.
func (t tool[In, Out]) call(ctx context.Context, s *server, request *sdk.CallToolRequest, in In) (out Out, sentence, workspace string, err error) {
	if workspace, err = in.workspace(); err != nil {
		return out, "", "", err
	}
	token, ok := web.BearerToken(request.Extra.Header)
	if !ok { // the handler refuses such requests
		return out, "", workspace, errors.New("no bearer token")
	}
	select {
	case s.calls <- struct{}{}:
		defer func() { <-s.calls }()
	default:
		return out, "", workspace, errBusy
	}
	defer func() {
		if recovered := recover(); recovered != nil { // a panic must not end the process, which also runs the provider
			s.cfg.Log.Error(errPanic, "A tool panicked", "tool", t.name, "panic", recovered, "stack", string(debug.Stack()))
			err = errPanic
		}
	}()
	client, err := s.clients.in(workspace, token)
	if err != nil {
		return out, "", workspace, err
	}
	timeout := s.cfg.Limits.Timeout
	if waits, ok := any(in).(waiter); ok {
		timeout += waits.wait()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if carrier, ok := ctx.Value(carrierKey{}).(context.Context); ok {
		defer context.AfterFunc(carrier, cancel)()
	}
	out, sentence, err = t.run(ctx, &call{client, s, request, workspace}, in)
	return out, sentence, workspace, err
}

// errPanic is the error of a tool that panicked.
var errPanic = errors.New("this server has failed")

var (
	readOnly  = sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}
	additive  = sdk.ToolAnnotations{DestructiveHint: ptr.To(false)}
	overwrite = sdk.ToolAnnotations{DestructiveHint: ptr.To(true), IdempotentHint: true}
)
