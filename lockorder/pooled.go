package lockorder

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pooledParameters are the start-up parameters that PgBouncer keeps for each client. It refuses any other.
var pooledParameters = set("APPLICATION_NAME CLIENT_ENCODING DATESTYLE TIMEZONE STANDARD_CONFORMING_STRINGS")

// forPooler makes connections fit for a pooler of transactions: each transaction, and each statement outside one, may
// reach another backend. So no statement is prepared under a name, and nothing is described in one flight to be sent in
// the next; and what a connection sets at its start would be lost, or refused.
func forPooler(config *pgxpool.Config) error {
	for _, name := range slices.Sorted(maps.Keys(config.ConnConfig.RuntimeParams)) {
		if !pooledParameters[strings.ToUpper(name)] {
			return fmt.Errorf("the parameter %s cannot be sent through a pooler of transactions: take it out of the database URL and "+
				"set it on the server (ALTER ROLE … SET, ALTER DATABASE … SET)", name)
		}
	}
	if config.ConnConfig.DefaultQueryExecMode != pgx.QueryExecModeSimpleProtocol {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	config.ConnConfig.StatementCacheCapacity = 0
	config.ConnConfig.DescriptionCacheCapacity = 0
	config.ConnConfig.BuildContextWatcherHandler = func(c *pgconn.PgConn) ctxwatch.Handler {
		return &pooledCancel{conn: c, bound: endTimeout}
	}
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		// Without a description from the server, arguments are encoded by their Go type.
		conn.TypeMap().RegisterDefaultPgType(uuid.UUID{}, "uuid")
		conn.TypeMap().RegisterDefaultPgType([]uuid.UUID{}, "_uuid")
		if after != nil {
			return after(ctx, conn)
		}
		return nil
	}
	return nil
}
