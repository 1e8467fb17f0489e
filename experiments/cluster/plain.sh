#!/bin/sh
# parallel.sh without GNU parallel: all shards at once, as background processes of this shell.
#
#   experiments/cluster/plain.sh EXPERIMENT SHARDS
set -eu
name=$1 shards=$2
lab=${LAB:-target/lab/strata-lab}
parts=${PARTS:-target/experiments}
running=
for i in $(seq "$shards"); do
    "$lab" run "$name" --jobs "${JOBS:-1}" --shard "$i/$shards" --parts "$parts" &
    running="$running $!"
done
# Each is waited for by its number, since a plain `wait` forgets who failed.
failed=0
for process in $running; do wait "$process" || failed=1; done
if [ "$failed" = 1 ]; then
    echo "a shard failed; the same command goes on where it was" >&2
    exit 1
fi
exec "$lab" merge "$name" --parts "$parts"
