// Package network is checked with a flag that names what reaches the network.
package network

import (
	"context"

	"github.com/bursarhq/bursar/lockorder"

	"example.com/shop/flags/sms"
)

// Mailer is named by the flag.
type Mailer interface{ Mail(text string) error }

// Pager is not.
type Pager interface{ Page(text string) error }

func run(ctx context.Context, tx *lockorder.Tx, m Mailer, p Pager) error {
	m.Mail("hello")   // want `network: network.Mailer.Mail can reach`
	sms.Send("hello") // want `network: sms.Send can reach`
	p.Page("hello")
	return nil
}
