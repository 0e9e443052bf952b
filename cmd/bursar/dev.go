package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/bursarhq/bursar/entitlements"
	"github.com/bursarhq/bursar/internal/dev"
	"github.com/bursarhq/bursar/lockorder"
)

func newDevCommand(a *app) *cobra.Command {
	options := dev.Options{Out: a.out, Show: showReport}
	cmd := &cobra.Command{
		Use:   "dev [CATALOG]",
		Short: "Run everything on this machine and play a story",
		Long: `Starts a private PostgreSQL, a Temporal server with its UI, a stand-in for Stripe, the worker and the ingress, with
nothing to configure. Then it plays a story, a member's way from the checkout to the cancellation, and shows what
the member may use after each step. It stays up until Ctrl-C and leaves no process and no file behind.

With STRIPE_API_KEY set it serves that account instead: it buys nothing there and plays no story, but polls the
account's events of the last day and from then on, since Stripe cannot send webhooks to a laptop. Give it a
catalogue with your prices then.

PostgreSQL 15 or later and the Temporal CLI are used where they are found; otherwise the one is downloaded and the other built,
once, which takes some minutes.`,
		Example: `  bursar dev
  bursar dev --once                     end after the story
  STRIPE_API_KEY=sk_test_… bursar dev catalog.yaml`,
		Args: between(0, "CATALOG"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options.StripeKey, options.StripeURL = a.getenv("STRIPE_API_KEY"), a.getenv("STRIPE_API_URL")
			if len(args) == 1 {
				var err error
				if options.CatalogName, options.Catalog, err = a.readFile(args[0]); err != nil {
					return err
				}
			}
			return dev.Run(cmd.Context(), options)
		},
	}
	cmd.Flags().BoolVar(&options.Once, "once", false, "end after the story")
	return cmd
}

// showReport prints what an organisation is entitled to, as `bursar entitlements` does.
func showReport(ctx context.Context, out io.Writer, db *lockorder.DB, organization string) error {
	org, err := entitlements.FindOrganization(ctx, db.Reader(), organization)
	if err != nil {
		return err
	}
	report, err := entitlements.Effective(ctx, db.Reader(), org.ID, time.Time{})
	if err != nil {
		return err
	}
	printReport(out, org, report)
	return nil
}
