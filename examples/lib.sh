# shellcheck shell=bash
# A private, throw-away PostgreSQL, processes that end with the script, and words for the reader. Sourced, at the root of the
# repository, by scripts/try and by the `run` of each example. It must not touch a server or a process that it did not start.
#
# The tests set EXAMPLE_DATABASE_URL (an empty database, used instead of a new server) and EXAMPLE_BIN (a directory of built
# programs). POSTRIDER_TEST_PG_BIN names a directory of PostgreSQL programs to use instead of Debian's newest.

# How long a state may take to come about.
PATIENCE_SECONDS=60

die() {
    printf '%s: error: %s\n' "$0" "$*" >&2
    exit 1
}

# The directory of initdb, pg_ctl and postgres; the newest that Debian has unless named.
find_server() {
    if [[ -n ${POSTRIDER_TEST_PG_BIN:-} ]]; then
        printf '%s\n' "$POSTRIDER_TEST_PG_BIN"
    elif compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
        dirname "$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)"
    elif command -v initdb >/dev/null; then
        dirname "$(command -v initdb)"
    fi
}

# build CARGO-ARGUMENT…: builds, and puts the programs into the PATH. Installs what is missing first.
build() {
    if [[ -n ${EXAMPLE_BIN:-} ]]; then
        programs=$EXAMPLE_BIN
        PATH=$programs:$PATH
        return
    fi
    if [[ -z $(find_server) ]] || ! command -v psql >/dev/null || ! command -v cargo >/dev/null || ! command -v cc >/dev/null; then
        ./scripts/setup --without-kafka
    fi
    printf 'building (some minutes the first time)\n'
    cargo build --quiet --locked "$@"
    programs=$(cargo metadata --no-deps --format-version 1 --locked | grep -o '"target_directory":"[^"]*"' | cut -d '"' -f 4)/debug
    PATH=$programs:$PATH
}

# Makes the directory `place`, which goes when the script ends, and starts a server in it. Sets DATABASE_URL.
# The server has a socket and no port, unless server_listens and server_port are set.
start_postgres() {
    # A short path: a socket's may not be longer than about 100 bytes.
    place=$(mktemp -d /tmp/postrider.XXXXXX)
    as_server=()
    server=
    trap clean_up EXIT
    trap 'exit 130' INT
    # What the caller has in PGHOST, PGPORT and the like must not lead to another server.
    unset "${!PG@}"
    if [[ -n ${EXAMPLE_DATABASE_URL:-} ]]; then
        export DATABASE_URL=$EXAMPLE_DATABASE_URL
        return
    fi
    server=$(find_server)
    [[ -x $server/initdb ]] || die "there is no initdb in '$server'; POSTRIDER_TEST_PG_BIN can name another directory"
    # PostgreSQL refuses to run as root.
    if ((EUID == 0)); then
        local account
        account=$(getent passwd postgres nobody | head -n 1 | cut -d : -f 1)
        [[ -n $account ]] || die "there is no account 'postgres' or 'nobody' to run the server under"
        as_server=(runuser -u "$account" --)
        chown "$account" "$place"
    fi
    in_place "$server/initdb" -D "$place/data" -U postgres -A trust -E UTF8 --locale=C --no-sync
    in_place "$server/pg_ctl" -D "$place/data" -w -l "$place/server.log" \
        -o "-c listen_addresses='${server_listens:-}' -c unix_socket_directories='$place' -c port=${server_port:-5432} -c fsync=off" start
    export DATABASE_URL="postgres:///postgres?host=$place&port=${server_port:-5432}&user=postgres"
}

# The database's address for another login.
url_as() {
    case $DATABASE_URL in
        *user=postgres*) printf '%s\n' "${DATABASE_URL/user=postgres/user=$1}" ;;
        *) printf '%s\n' "${DATABASE_URL/postgres@/$1@}" ;;
    esac
}

in_place() {
    (cd / && "${as_server[@]}" "$@" >>"$place/setup" 2>&1) || {
        cat "$place/setup" "$place/server.log" >&2 2>/dev/null || true
        die "'$*' failed (see above)"
    }
}

clean_up() {
    local code=$? log
    ((${#pid_of[@]} == 0)) || kill "${pid_of[@]}" 2>/dev/null || true
    wait || true
    if ((code != 0 && code != 130)); then
        for log in "$place"/*.log; do
            [[ -f $log ]] || continue
            printf '\n==> %s\n' "${log##*/}" >&2
            tail -n 20 "$log" >&2
        done
    fi
    if [[ -f $place/data/postmaster.pid ]]; then
        (cd / && "${as_server[@]}" "$server/pg_ctl" -D "$place/data" -m immediate stop >/dev/null 2>&1) || true
    fi
    rm -rf -- "$place"
}

# start NAME COMMAND…: in the background, until the script ends or `stop NAME`. Its output is in NAME.log.
declare -A pid_of=()
start() {
    local name=$1
    shift
    # Now, not when the process gets to it: `address_of` reads it.
    : >"$place/$name.log"
    "$@" >>"$place/$name.log" 2>&1 &
    pid_of[$name]=$!
}

stop() {
    kill "${pid_of[$1]}"
    wait "${pid_of[$1]}" || die "$1 ended with code $?"
    unset "pid_of[$1]"
}

# The address that a program says it listens on, once it does.
address_of() {
    local deadline=$((SECONDS + PATIENCE_SECONDS)) address=
    until [[ -n $address ]]; do
        if ((SECONDS >= deadline)) || ! kill -0 "${pid_of[$1]}" 2>/dev/null; then
            die "$1 did not start"
        fi
        sleep 0.05
        address=$(sed -nE 's,.*(listening on |address=|http://)(127\.0\.0\.1:[0-9]+).*,\2,p' "$place/$1.log" | head -n 1)
    done
    printf '%s\n' "$address"
}

say() { printf '\n# %s\n' "$*"; }
ok() { printf 'ok: %s\n' "$*"; }

# Prints a command, then runs exactly that.
run() {
    printf '$ %s\n' "$1"
    eval "$1"
}

# run_as LOGIN COMMAND: the same, with the database's address for that login.
run_as() {
    printf '%s' "$1"
    DATABASE_URL=$(url_as "$1") run "$2"
}

# sql [ON_ERROR_STOP]: prints the SQL of stdin, then hands it to psql.
sql() {
    local text
    text=$(cat)
    # shellcheck disable=SC2016 # the words are shown, not meant for this shell
    printf '$ psql "$DATABASE_URL" <<SQL\n%s\nSQL\n' "$text"
    psql -X -q -v ON_ERROR_STOP="${1:-1}" -P pager=off -P footer=off "$DATABASE_URL" <<<"$text" 2>&1
}

ask() { psql -X -q -A -t -v ON_ERROR_STOP=1 "$DATABASE_URL" -c "$1"; }

# expect WHAT IS SHOULD
expect() {
    [[ $2 == "$3" ]] || die "$1: '$2' instead of '$3'"
    ok "$1: $2"
}

# until_ok WHAT COMMAND: the command comes to succeed.
until_ok() {
    local deadline=$((SECONDS + PATIENCE_SECONDS))
    until "${@:2}"; do
        ((SECONDS < deadline)) || die "not within $PATIENCE_SECONDS seconds: $1"
        sleep 0.05
    done
    ok "$1"
}

is_true() { [[ $(ask "$1") == t ]]; }

# until_true WHAT QUERY: the query comes to answer `t`.
until_true() { until_ok "$1" is_true "$2"; }
