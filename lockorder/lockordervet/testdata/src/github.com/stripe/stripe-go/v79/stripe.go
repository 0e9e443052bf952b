// Package stripe stands in for the real one: the part that is types, and the back end.
package stripe

import "net/http"

type Subscription struct{ ID string }

func String(s string) *string { return &s }

type Backend interface {
	Call(method, path string) error
}

type BackendImplementation struct{ client http.Client }

func (b *BackendImplementation) Call(method, path string) error {
	_, err := b.client.Get(path)
	return err
}
