#!/bin/sh
# Stops and disables the roles when the package is removed, not when it is upgraded. Debian's
# argument is `remove` or `upgrade`, rpm's is the number of versions that will be left.
set -e
case "$1" in
  remove | 0)
    if [ -d /run/systemd/system ]; then
      for role in producer processor ranker reader archive bridge notify; do
        systemctl --no-reload disable --now "kudos-$role.service"
      done
    fi
    ;;
esac
