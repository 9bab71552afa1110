#!/bin/sh
# Builds this machine's deb of the current tree as a release would, installs it, checks it, runs the
# command in its arguments while it is installed, with the path of the package in DEB, and purges
# it. It needs root on Debian; elsewhere it says what it skipped, and with CI=true it fails. The
# user kudos remains, as after any purge.
set -eu
cd "$(dirname "$0")/../.."
roles='producer processor ranker reader archive bridge notify'
step='' began=0 dir=$(mktemp -d)

begin() { # STEP: ends the previous one
  now=$(date +%s)
  [ -z "$step" ] || echo "package: $step: $((now - began)) s"
  step=$1 began=$now
}
fail() {
  echo "package: $*" >&2
  exit 1
}
skip() {
  [ "${CI:-}" != true ] || fail "$*"
  begin ''
  echo "package: skipped: $*"
  exit 0
}
remove() {
  status=$?
  if [ -e "$dir/installed" ]; then
    # Nothing of it was there before. The purge keeps the archive.
    dpkg --purge kudos >"$dir/purge" 2>&1 || { cat "$dir/purge" >&2; status=1; }
    rm -rf /var/lib/kudos
  fi
  rm -rf "$dir"
  exit "$status"
}
trap remove EXIT
trap 'exit 130' INT TERM

begin 'units'
hardening() { sed -n '/^# No privileges/,$p' "deploy/systemd/kudos-$1.service"; }
for role in $roles; do
  [ "$(hardening "$role")" = "$(hardening producer)" ] ||
    fail "kudos-$role.service and kudos-producer.service differ after '# No privileges'"
done

# The release's configuration with one target, its own directory, and the flags of the tests: with
# others, Go would compile everything again.
begin 'build goreleaser, unless cached'
arch=$(go env GOHOSTARCH)
sed -e '/^  - id: iceberg #/,/mod_timestamp/d' \
  -e 's/^    flags: .*/    flags: [-pgo=off]/' \
  -e 's/^    goos: .*/    goos: [linux]/' -e "s/^    goarch: .*/    goarch: [$arch]/" \
  .goreleaser.yaml >"$dir/config.yaml"
echo "dist: $dir/dist" >>"$dir/config.yaml"
goreleaser() {
  SBOM=no deploy/package/goreleaser.sh "$@" >"$dir/log" 2>&1 || { cat "$dir/log"; exit 1; }
}
goreleaser --version
begin 'build the package'
goreleaser check
goreleaser release --snapshot --skip=publish,sbom,archive,homebrew --config "$dir/config.yaml"
version=$(sed -n 's/.*"version":"\([^"]*\)".*/\1/p' "$dir/dist/metadata.json")

begin 'contents'
command -v dpkg-deb >/dev/null || skip 'contents and installation: there is no dpkg-deb'
deb=$(echo "$dir"/dist/*.deb)
dpkg-deb -c "$deb" | awk '{print $1, $2, $6}' >"$dir/files"
has() { # MODE OWNER FILE
  grep -qxF -e "$1 $2 ./$3" "$dir/files" || { cat "$dir/files"; fail "the deb does not have $*"; }
}
has -rwxr-xr-x root/root usr/bin/kudos
has -rw-r----- root/kudos etc/kudos/kudos.yaml
has drwxr-x--- kudos/kudos var/lib/kudos/
has -rw-r--r-- root/root usr/share/man/man1/kudos.1.gz
has -rw-r--r-- root/root usr/share/bash-completion/completions/kudos
has -rw-r--r-- root/root usr/share/zsh/vendor-completions/_kudos
has -rw-r--r-- root/root usr/share/fish/vendor_completions.d/kudos.fish
for role in $roles; do
  has -rw-r--r-- root/root "usr/lib/systemd/system/kudos-$role.service"
  has -rw-r--r-- root/root "usr/share/man/man1/kudos-$role.1.gz"
done

begin 'install'
command -v dpkg >/dev/null || skip 'installation: there is no dpkg'
[ "$(id -u)" = 0 ] || skip 'installation: it needs root'
for path in /usr/bin/kudos /etc/kudos /var/lib/kudos; do
  [ ! -e "$path" ] || skip "installation: $path exists already, and would be purged at the end"
done
touch "$dir/installed"
# dpkg prints all that went well, too.
dpkg -i "$deb" >"$dir/log" 2>&1 || { cat "$dir/log"; fail 'dpkg -i failed'; }

begin 'installed files'
# Without the caller's settings.
kudos() { env -i PATH="$PATH" /usr/bin/kudos "$@"; }
as_kudos() { setpriv --reuid kudos --regid kudos --clear-groups --no-new-privs "$@"; }
kudos version >"$dir/out"
grep -qF "kudos $version " "$dir/out" || fail "the version is not $version but $(cat "$dir/out")"
# Nothing is set until somebody sets it: only without producer.auth, even its default, does the
# producer refuse to listen where other machines reach it.
as_kudos env -i /usr/bin/kudos config --config /etc/kudos/kudos.yaml >"$dir/out"
[ "$(grep -vc ' default$' "$dir/out")" = 1 ] || # the titles
  { cat "$dir/out"; fail '/etc/kudos/kudos.yaml sets something'; }
bash -n /usr/share/bash-completion/completions/kudos
man=yes
# Images of Debian leave out manual pages.
if grep -qs '^path-exclude.*/man' /etc/dpkg/dpkg.cfg /etc/dpkg/dpkg.cfg.d/*; then man=no; fi
for role in $roles; do
  [ $man = no ] || [ -e "/usr/share/man/man1/kudos-$role.1.gz" ] || fail "no kudos-$role.1.gz"
done
if command -v systemd-analyze >/dev/null; then
  command -v man >/dev/null || man=no
  systemd-analyze verify --man=$man --recursive-errors=no /usr/lib/systemd/system/kudos-*.service \
    >"$dir/out" 2>&1 || true
  [ ! -s "$dir/out" ] || { cat "$dir/out"; fail 'systemd-analyze found errors in the units'; }
else
  echo 'package: skipped: systemd-analyze verify, it is not installed'
fi

# As systemd would, but without servers. A role that accepts its settings runs until SIGTERM, and
# then exits with 0. --foreground: otherwise it gets two, and the second makes it exit at once.
begin 'roles'
for role in $roles; do
  unit=/usr/lib/systemd/system/kudos-$role.service
  # shellcheck disable=SC2046 # words
  as_kudos timeout --foreground --preserve-status 5 env -i -C /var/lib/kudos \
    $(sed -n 's/^Environment=//p' "$unit") KUDOS_ADMIN_ADDR=127.0.0.1:0 \
    KUDOS_KAFKA_BROKERS=127.0.0.1:1 KUDOS_MYSQL_DSN='kudos@tcp(127.0.0.1:1)/kudos' \
    KUDOS_PRODUCER_HTTP_ADDR=127.0.0.1:0 KUDOS_READER_HTTP_ADDR=127.0.0.1:0 \
    KUDOS_BRIDGE_TOPIC=source KUDOS_NOTIFY_URL=http://127.0.0.1:1 \
    $(sed -n 's/^ExecStart=//p' "$unit") >"$dir/$role" 2>&1 &
  echo $! >"$dir/pid-$role"
done
for role in $roles; do
  wait "$(cat "$dir/pid-$role")" || { cat "$dir/$role"; fail "kudos $role failed"; }
  grep -q '"event":"listening"' "$dir/$role" ||
    { cat "$dir/$role"; fail "kudos $role did not start"; }
done

if [ $# != 0 ]; then
  begin 'the given command'
  DEB=$deb "$@"
fi

begin 'purge'
dpkg --purge kudos >"$dir/log" 2>&1 || { cat "$dir/log"; fail 'dpkg --purge failed'; }
rm -f "$dir/installed"
for path in /usr/bin/kudos /etc/kudos /var/lib/kudos/state; do
  [ ! -e "$path" ] || fail "the purge left $path"
done
rm -rf /var/lib/kudos # the archive
begin ''
echo "package: kudos $version: ok"
