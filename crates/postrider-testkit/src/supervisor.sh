# Owns one directory and one process for a test process, and removes both when that process is gone.
# Started by supervisor.rs in a process group of its own, with the directory as $1; each line of its input is
# `run SIGNAL COMMAND…` (answers with the process id) or `wait` (answers with the exit code).
# The end of its input, which comes when the test process ends in whatever way, is the order to clean up.

directory=$1
child=
stop_signal=TERM

# A test process that dies while it is answered must not take this one along before it has cleaned up.
trap '' PIPE
trap 'exit 143' HUP INT TERM
trap clean_up EXIT

clean_up() {
    trap '' HUP INT TERM
    if [ -n "$child" ]; then
        # A frozen server takes no signal but this one. Its children first: they would keep it waiting, and once it is
        # gone nobody knows whose they were.
        for stat in /proc/[0-9]*/stat; do
            read -r pid _ _ parent _ <"$stat" || continue
            [ "$parent" != "$child" ] || kill -s CONT "$pid"
        done
        kill -s "$stop_signal" "$child"
        kill -s CONT "$child"
        (sleep 10; kill -s KILL "$child") &
        watchdog=$!
        wait "$child"
        kill -s TERM "$watchdog"
    fi
    # A server that was killed outright leaves its System V segment; line 7 of its lock file names it.
    lock=$directory/data/postmaster.pid
    if [ -f "$lock" ]; then
        segment=$(sed -n '7s/.* //p' "$lock")
        [ -z "$segment" ] || ipcrm -m "$segment"
    fi
    rm -rf -- "$directory"
}

mkdir -m 700 -- "$directory" || exit 1
echo ready

while read -r order stop_with command; do
    case $order in
        run)
            stop_signal=$stop_with
            eval "exec $command </dev/null >>\"\$directory/log\" 2>&1 &"
            child=$!
            echo "$child"
            ;;
        wait)
            wait "$child"
            code=$?
            child=
            echo "$code"
            ;;
    esac
done
