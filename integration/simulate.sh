#!/bin/sh
# Runs simulated schedules in chunks, and adds each chunk without a violation to a file. It begins after the schedules
# that the file has of the same build and first seed, so that it can be stopped at any time and run again.
#
#   integration/simulate.sh SCHEDULES SEED BUILD FILE
#
# A line of the file: build, first seed of all, first seed of the chunk, number of schedules.
set -eu
schedules=$1 seed=$2 build=$3 file=$4 chunk=${CHUNK:-20000}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go test -c -o "$dir/simulation" ./integration/simulation
touch "$file"
recorded() { awk -v build="$build" -v seed="$seed" '$1 == build && $2 == seed { n += $4 } END { print n + 0 }' "$file"; }
while finished=$(recorded) && [ "$finished" -lt "$schedules" ]; do
	n=$((schedules - finished))
	if [ "$n" -gt "$chunk" ]; then n=$chunk; fi
	"$dir/simulation" -test.v -test.timeout 0 -test.run '^TestSchedules$' -schedules "$n" -seed $((seed + finished))
	echo "$build $seed $((seed + finished)) $n" >>"$file"
done
echo "build $build seeds $seed to $((seed + finished - 1)): schedules $finished violations 0"
