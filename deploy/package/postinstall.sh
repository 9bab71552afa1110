#!/bin/sh
# Makes the units known. It enables, starts and restarts none: an upgrade must follow an order, one
# process at a time (docs/deploy.md), with `systemctl restart kudos-ROLE`.
set -e
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
