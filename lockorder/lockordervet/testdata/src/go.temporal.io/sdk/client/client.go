// Package client stands in for the real one.
package client

import "context"

type WorkflowRun interface {
	GetID() string
	Get(ctx context.Context, value any) error
}

type Client interface {
	ExecuteWorkflow(ctx context.Context, workflow any) (WorkflowRun, error)
	SignalWorkflow(ctx context.Context, id string) error
}

type Options struct{}

func Dial(options Options) (Client, error) { return nil, nil }
