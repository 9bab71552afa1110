#!/bin/sh
# Writes what the archives and packages contain besides the program to build/: manual pages,
# completions and the settings file. .goreleaser.yaml runs it before it builds.
set -eu
cd "$(dirname "$0")/../.."
umask 022
rm -rf build/man build/completions build/kudos.yaml
mkdir -p build/man build/completions

# With the flags of the tests (Makefile), so that Go compiles the program once for both.
export CGO_ENABLED=0
program=$(mktemp -d)
trap 'rm -rf "$program"' EXIT
go build -pgo=off -ldflags=-w -o "$program/" . ./deploy/package/man

# The pages have the month of the commit, not of today.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) "$program/man" build/man
gzip -n9 build/man/*
for shell in bash zsh fish; do
  "$program/kudos" completion "$shell" >"build/completions/kudos.$shell"
done
# Every setting is a comment, for two reasons. An upgrade keeps the file, and with it would keep the
# defaults of the version that was installed first. And `producer.auth: none` in a file means that
# the producer may accept likes from anyone who reaches it; it must not be set unless somebody
# decides it.
sed -E 's/^( *)([a-z0-9_]+:.+)$/\1#\2/' config/kudos.example.yaml >build/kudos.yaml
