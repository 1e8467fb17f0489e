#!/bin/sh
# Shares an experiment's points among processes with GNU parallel, then joins them.
#
#   experiments/cluster/parallel.sh EXPERIMENT SHARDS [options of parallel]
#
# With `--sshlogin` the processes run on other machines, which need the same program and checkout at the same path and a
# PARTS folder that all of them see. A shard that fails is tried three times; what it had done is not done again.
set -eu
name=$1 shards=$2
shift 2
lab=${LAB:-target/lab/strata-lab}
parts=${PARTS:-target/experiments}
seq "$shards" | parallel --no-notice --halt soon,fail=1 --retries 3 "$@" "$lab" run "$name" --jobs "${JOBS:-1}" --shard "{}/$shards" --parts "$parts"
exec "$lab" merge "$name" --parts "$parts"
