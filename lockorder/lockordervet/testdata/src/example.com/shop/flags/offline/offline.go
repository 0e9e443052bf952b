// Package offline is checked with a flag that names what never reaches the network, though it looks so.
package offline

import (
	"context"

	"github.com/bursarhq/bursar/lockorder"

	"example.com/shop/farm"
)

func run(ctx context.Context, tx *lockorder.Tx, c *farm.Client) error {
	callFarm(ctx, c)
	c.Fetch("a") // want `network: farm.Fetch can reach`
	return nil
}

func callFarm(ctx context.Context, c *farm.Client) { c.Site(ctx, "a") }
