// Package farm wraps what reaches the network, some of it.
package farm

import (
	"context"
	"net/http"

	"github.com/stripe/stripe-go/v79"
)

// Client calls the farm.
type Client struct {
	HTTP  http.Client
	Fetch func(id string) error
	Name  func() string
}

func New() *Client {
	c := &Client{Fetch: func(id string) error {
		_, err := http.Get("http://127.0.0.1/" + id)
		return err
	}}
	c.Name = func() string { return "farm" }
	return c
}

func (c *Client) Site(ctx context.Context, id string) (string, error) { return c.get(ctx, "/site/"+id) }

func (c *Client) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return "", err
	}
	_, err = c.HTTP.Do(request)
	return "", err
}

// Slug calls nobody.
func Slug(name string) string { return http.CanonicalHeaderKey(name) }

// Warm is a variable that holds a function.
var Warm = func() error { _, err := http.Head("http://127.0.0.1"); return err }

// Sites is implemented here by what reaches the network.
type Sites interface {
	Site(ctx context.Context, id string) (string, error)
}

// Names is implemented by nothing that does.
type Names interface{ Named() string }

func (c *Client) Named() string { return "farm" }

// Charge goes through Stripe's own interface.
func Charge(b stripe.Backend) error { return b.Call("POST", "/v1/charges") }

// First calls itself by way of Second.
func First(n int) error {
	if n == 0 {
		return Warm()
	}
	return Second(n - 1)
}

func Second(n int) error { return First(n) }

// Local is allowed, and so is who calls it.
func Local() error {
	//lockordervet:allow network the stand-in answers within this process
	_, err := http.Get("http://127.0.0.1")
	return err
}
