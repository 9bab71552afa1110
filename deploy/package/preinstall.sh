#!/bin/sh
# Creates the system user that owns /var/lib/kudos and may read /etc/kudos: before the files are
# unpacked, since some belong to it. It works without systemd, such as in a container. Removing the
# package keeps the user.
set -e
getent group kudos >/dev/null || groupadd --system kudos
getent passwd kudos >/dev/null ||
  useradd --system --gid kudos --home-dir /var/lib/kudos --no-create-home \
    --shell /usr/sbin/nologin kudos
