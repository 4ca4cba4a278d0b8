# Runs a server and ends it with the process that started it.
#
#   sh watchdog.sh DIRECTORY PROGRAM ARGUMENT...
#
# Standard input is a pipe whose other end the starting process holds. A line on it is the name of the
# signal to stop the server with. When the pipe closes without a line, the starting process is gone,
# however it ended: the server is stopped at once and DIRECTORY is removed.

directory=$1
shift

exec 3<&0 </dev/null
"$@" 3<&- >>"$directory/server.log" 2>&1 &
server=$!

(
    if ! read -r signal <&3; then
        signal=QUIT
        : >"$directory/abandoned"
    fi
    kill -s "$signal" "$server"
) >/dev/null 2>&1 &
listener=$!

wait "$server"
status=$?
kill "$listener" 2>/dev/null
if [ -e "$directory/abandoned" ]; then
    cd / && rm -rf "$directory"
fi
exit "$status"
