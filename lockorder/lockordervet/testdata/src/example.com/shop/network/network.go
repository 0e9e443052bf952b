// Package network breaks the rule of that name, and keeps it.
package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"

	"github.com/bursarhq/bursar/lockorder"
	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/subscription"
	"github.com/stripe/stripe-go/v79/webhook"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"

	"example.com/elsewhere"
	"example.com/shop/farm"
)

type shop struct {
	db       *lockorder.DB
	farm     *farm.Client
	sites    farm.Sites
	names    farm.Names
	temporal client.Client
	conn     *grpc.ClientConn
	orders   ordersClient
	look     looker
	out      io.Writer
	hook     func() error
	quiet    func() error
}

// looker is implemented in this package.
type looker interface {
	look(ctx context.Context) error
}

// ordersClient is as gRPC generates them: what implements it is elsewhere.
type ordersClient interface {
	List(ctx context.Context, options ...grpc.CallOption) error
}

type wire struct{ dialer net.Dialer }

func (w *wire) look(ctx context.Context) error {
	_, err := w.dialer.DialContext(ctx, "tcp", "127.0.0.1:1")
	return err
}

func (s *shop) direct(ctx context.Context) error {
	return s.db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		http.Get("http://127.0.0.1")         // want `network: http.Get can reach the network inside a transaction function: call it before the transaction opens`
		http.DefaultClient.Do(nil)           // want `network: http.Client.Do can reach`
		http.DefaultTransport.RoundTrip(nil) // want `network: http.RoundTripper.RoundTrip can reach`
		net.Dial("tcp", "127.0.0.1:1")       // want `network: net.Dial can reach`
		net.LookupHost("localhost")          // want `network: net.LookupHost can reach`
		exec.Command("true").Run()           // want `network: exec.Cmd.Run can reach`
		subscription.Get("sub_1")            // want `network: subscription.Get can reach`
		s.temporal.SignalWorkflow(ctx, "w")  // want `network: client.Client.SignalWorkflow can reach`
		client.Dial(client.Options{})        // want `network: client.Dial can reach`
		s.orders.List(ctx)                   // want `network: network.ordersClient.List can reach`
		s.conn.Invoke(ctx, "/shop/Get")      // want `network: grpc.ClientConn.Invoke can reach`

		stripe.String(http.StatusText(200))
		webhook.ValidatePayload(nil, "", "")
		http.NewRequest("GET", "http://127.0.0.1", nil)
		net.ParseIP("127.0.0.1")
		net.JoinHostPort("localhost", "80")
		fmt.Fprintln(s.out, "an interface of another module is not followed")
		return tx.Exec(ctx, "SELECT 1")
	})
}

func (s *shop) helpers(ctx context.Context, run client.WorkflowRun) error {
	return s.db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		s.farm.Site(ctx, "a")       // want `network: farm.Client.Site can reach the network inside a transaction function \(farm.Client.Site → farm.Client.get → http.Client.Do\)`
		farm.Charge(nil)            // want `network: farm.Charge can reach .*\(farm.Charge → stripe.Backend.Call\)`
		farm.First(3)               // want `network: farm.First can reach .*http.Head`
		farm.Second(3)              // want `network: farm.Second can reach .*http.Head`
		elsewhere.Poster{}.Post("") // want `network: elsewhere.Poster.Post can reach .*http.Post`
		helper()                    // want `network: network.helper can reach the network inside a transaction function \(network.helper → network.deeper → http.PostForm\)`
		generic(s.farm)             // want `network: network.generic can reach`
		run.Get(ctx, nil)           // want `network: client.WorkflowRun.Get can reach`

		farm.Slug("a")
		farm.Local()
		run.GetID()
		harmless()
		return nil
	})
}

func helper() error { return deeper() }

func deeper() error { _, err := http.PostForm("http://127.0.0.1", nil); return err }

func harmless() string { return farm.Slug("a") }

func generic[S farm.Sites](s S) { s.Site(context.Background(), "a") }

func (s *shop) interfaces(ctx context.Context) error {
	return s.db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		s.sites.Site(ctx, "a") // want `network: farm.Sites.Site can reach .*\(farm.Sites.Site → farm.Client.Site`
		s.look.look(ctx)       // want `network: network.looker.look can reach .*\(network.looker.look → network.wire.look → net.Dialer.DialContext\)`
		s.names.Named()
		return nil
	})
}

func newShop() *shop {
	s := &shop{hook: helper}
	s.quiet = func() error { return nil }
	return s
}

func (s *shop) values(ctx context.Context) error {
	return s.db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		retry(helper)      // want `network: network.helper can reach`
		get := s.farm.Site // want `network: farm.Client.Site can reach`
		get(ctx, "a")
		each := (*farm.Client).Site // want `network: farm.Client.Site can reach`
		each(s.farm, ctx, "a")
		s.hook()          // want `network: network.hook can reach .*\(network.hook → network.helper`
		s.farm.Fetch("a") // want `network: farm.Fetch can reach .*\(farm.Fetch → http.Get\)`
		farm.Warm()       // want `network: farm.Warm can reach`
		func() {
			defer helper() // want `network: network.helper can reach`
		}()
		s.quiet()
		s.farm.Name()
		newShop()
		retry(s.quiet)
		return nil
	})
}

func retry(fn func() error) error { return fn() }

// Functions that are given to Run by name, and all that is given a transaction.

func (s *shop) named(ctx context.Context) error {
	return s.db.Run(ctx, lockorder.Spec{Handed: hand}, s.run)
}

func (s *shop) run(ctx context.Context, tx *lockorder.Tx) error {
	return helper() // want `network: network.helper can reach`
}

func hand(h *lockorder.Handed) {
	h.Queue("SELECT 1")
	helper() // want `network: network.helper can reach`
}

func handed(ctx context.Context, db *lockorder.DB) error {
	return db.Run(ctx, lockorder.Spec{Handed: func(h *lockorder.Handed) {
		helper() // want `network: network.helper can reach`
	}}, nil)
}

var registered = map[string]func(context.Context, *lockorder.Tx) error{
	"sync": func(ctx context.Context, tx *lockorder.Tx) error {
		return helper() // want `network: network.helper can reach`
	},
}

// told is checked itself, so its callers are not told again.
func told(ctx context.Context, tx *lockorder.Tx) error { return helper() } // want `network: network.helper can reach`

func teller(ctx context.Context, tx *lockorder.Tx) error { return told(ctx, tx) }

func outside(ctx context.Context, db *lockorder.DB, c *farm.Client) error {
	site, err := c.Site(ctx, "a")
	if err != nil {
		return err
	}
	if err := db.Run(ctx, lockorder.Spec{}, func(ctx context.Context, tx *lockorder.Tx) error {
		return tx.Exec(ctx, "SELECT $1", site)
	}); err != nil {
		return err
	}
	return helper()
}
