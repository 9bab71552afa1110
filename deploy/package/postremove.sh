#!/bin/sh
# A purge (Debian) deletes the state directories, which are caches. The archive is not a cache: it
# stays.
set -e
if [ "$1" = purge ]; then
  rm -rf /var/lib/kudos/state /var/lib/kudos/ranker-state /var/lib/kudos/reader-state
  rmdir --ignore-fail-on-non-empty /var/lib/kudos 2>/dev/null || true
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
