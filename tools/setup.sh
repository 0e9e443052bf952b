#!/bin/sh
# Installs what the tests need and this machine lacks: PgBouncer, and PostgreSQL where no server is found. It does so
# with apt-get, as root or through sudo without a password; elsewhere it says what to install. Where nothing is missing it
# does nothing.
set -eu

has() { # has NAME PATH... tells whether a program is on PATH, or one of the paths exists
	command -v "$1" >/dev/null 2>&1 && return 0
	shift
	for path in "$@"; do
		[ -x "$path" ] && return 0
	done
	return 1
}

missing=
if [ -z "${BURSAR_PGBOUNCER:-}" ]; then
	has pgbouncer /usr/sbin/pgbouncer /usr/local/sbin/pgbouncer /opt/homebrew/bin/pgbouncer || missing=pgbouncer
fi
# The tests look into more places for PostgreSQL, and download it where there is none; with DATABASE_URL they need none.
if [ -z "${BURSAR_POSTGRES_BIN:-}${DATABASE_URL:-}" ]; then
	has postgres /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres /usr/local/pgsql/bin/postgres \
		/opt/homebrew/opt/postgresql*/bin/postgres /usr/local/opt/postgresql*/bin/postgres || missing="$missing postgresql"
fi
[ -n "$missing" ] || exit 0

if ! has apt-get; then
	echo "setup: the tests need what is missing here; install with your package manager:" $missing >&2
	exit 1
fi
as=
if [ "$(id -u)" != 0 ]; then
	if ! { has sudo && sudo -n true 2>/dev/null; }; then
		echo "setup: the tests need what is missing here; run: sudo apt-get install" $missing >&2
		exit 1
	fi
	as="sudo -n"
fi

echo "setup: installing" $missing
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { $as apt-get update && $as env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
	tail -n 25 "$log" >&2
	echo "setup: apt-get failed; install what is missing by hand:" $missing >&2
	exit 1
fi
# The packages may have started services, which nobody asked for: the tests start servers of their own.
for package in $missing; do
	if has systemctl && [ -d /run/systemd/system ]; then
		$as systemctl disable --now "$package" >/dev/null 2>&1 || true
	elif [ -x "/etc/init.d/$package" ]; then
		$as "/etc/init.d/$package" stop >/dev/null 2>&1 || true
	fi
done
