package locktest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { Main(m) }

// conn opens a connection for the length of an act.
func withConn(ctx context.Context, e *Env, do func(*pgx.Conn) error) error {
	conn, err := e.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

// execs runs statements one by one.
func execs(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// tables is a set-up that runs statements.
func tables(statements ...string) func(testing.TB, *Env) {
	return func(t testing.TB, e *Env) {
		if err := withConn(t.Context(), e, func(c *pgx.Conn) error { return execs(t.Context(), c, statements...) }); err != nil {
			t.Fatal(err)
		}
	}
}
