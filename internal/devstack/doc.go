// Package devstack starts the real parts that Bursar stands on, for `bursar dev` and for tests: a private
// PostgreSQL ([StartPostgres]), a PgBouncer in front of one ([StartPgBouncer]) and a Temporal development server with
// its UI ([StartTemporal]).
//
// # What a caller can rely on
//
//   - Nothing to configure. Binaries that the machine already has are used; missing ones are downloaded or built
//     once into the user's cache folder, one process at a time, while Progress says what is going on. PgBouncer alone
//     has to be installed.
//   - All listen on 127.0.0.1 only, on ports that were free; a port that somebody took in the meantime is
//     replaced by another.
//   - Each keeps its files in one temporary folder of its own, named after the owning process. Stop removes it.
//   - A part never outlives the process that started it. Stop ends it in order; when the owner is killed outright
//     the kernel ends it (on Linux), or a small watchdog does (elsewhere). Only then does the folder stay behind;
//     the next start sweeps folders whose owner is gone.
//   - A part runs in a process group of its own: Ctrl-C in the terminal reaches the owner alone, which can drain
//     its work while the parts still answer.
//   - It works as root too. PostgreSQL and PgBouncer refuse to run as root, so they are then run as the user
//     `postgres`, or `nobody` where there is none.
//
// # State and authority
//
// The context given to a Start function bounds the start alone; the part then runs until Stop. Stop may be called
// any number of times, from any goroutine; it is bounded in time whatever the part does. Done is closed when the
// part has ended, by Stop or by itself.
//
// # Settings from the environment
//
//   - BURSAR_POSTGRES_BIN: the folder that holds initdb and postgres (version 15 or newer).
//   - BURSAR_PGBOUNCER: the PgBouncer to run.
//   - BURSAR_TEMPORAL_CLI: the Temporal CLI to run.
//   - TMPDIR, XDG_CACHE_HOME, HOME: where temporary and cached files go, as everywhere.
package devstack
