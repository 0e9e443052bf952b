// Command bursar turns paid Stripe subscriptions into entitlements. Its subcommands are one file each; this one only
// connects them to the process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	a := newApp(os.Stdin, os.Stdout, os.Stderr)
	code := a.run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
