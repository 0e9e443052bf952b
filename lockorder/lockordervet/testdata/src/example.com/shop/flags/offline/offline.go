// Package offline is checked with a flag that names what never reaches the network, though it looks so.
package offline

import (
	"context"

	"github.com/bursarhq/bursar/lockorder"

	"example.com/shop/farm"
)

func run(ctx context.Context, tx *lockorder.Tx, c *farm.Client) error {
	c.Site(ctx, "a")
	c.Fetch("a") // want `network: farm.Fetch can reach`
	return nil
}
