#!/usr/bin/env bash
# Installs what the tests on real servers need: Java, Maven, MariaDB, Galera, kcat, curl, valgrind, Redis (a benchmark
# peer), Kafka's jars, Chromium and Node (dashboard tests), Python (`make openapi`); and MySQL itself, some 550 MB, if
# called as `deps.sh mysql` or in CI. It needs root on a Debian-like system; elsewhere it prints what to install. It is
# fast if nothing is missing, so every `make test` can call it.
set -euo pipefail
cd "$(dirname "$0")/.."

with_mysql=false
case "${1:-}" in
  mysql) with_mysql=true ;;
  "") [ "${CI:-}" = true ] && [ "$(uname -s)" = Linux ] && with_mysql=true ;;
  *) echo "usage: integration/deps.sh [mysql]" >&2; exit 2 ;;
esac

# The PATH of a user may lack the directories of server programs.
PATH="$PATH:/usr/sbin:/usr/local/sbin"
have() { command -v "$1" >/dev/null 2>&1; }

# The major version of Java, 0 without Java. JAVA_HOME takes precedence over PATH, as in the Go code.
java_release() {
  local java=java release
  [ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
  release=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || true
  echo "${release:-0}"
}

# The major version of Node, 0 without Node.
node_release() {
  local release
  release=$(node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p') || true
  echo "${release:-0}"
}

packages=() # names in Debian
[ "$(java_release)" -ge 17 ] || packages+=(openjdk-17-jre-headless)
have mvn || packages+=(maven)
# The -core packages contain only the programs, without the system service, which would start at boot.
{ have mariadbd && have mariadb-install-db && have mariadb; } || packages+=(mariadb-server-core mariadb-client-core)
have kcat || packages+=(kcat)
have curl || packages+=(curl)
[ "$(uname -s)" != Linux ] || have valgrind || packages+=(valgrind)
if [ "$(uname -s)" = Linux ]; then # nodes of a Galera cluster copy each other's data by rsync
  [ -e /usr/lib/galera/libgalera_smm.so ] || packages+=(galera-4)
  have rsync || packages+=(rsync)
  have ss || packages+=(iproute2)
fi
have redis-server || packages+=(redis-server) # a benchmark peer
have chromium || have chromium-browser || have google-chrome || packages+=(chromium)
{ [ "$(node_release)" -ge 20 ] && have npm; } || packages+=(nodejs npm)
python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv) # make openapi
if $with_mysql; then # libraries that mysqld is linked against
  libraries=$(/sbin/ldconfig -p)
  [[ $libraries == *libaio.so.1* ]] || packages+=(libaio1)
  [[ $libraries == *libnuma.so.1* ]] || packages+=(libnuma1)
fi

if [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] || ! have apt-get; then
    {
      echo "integration/deps.sh: missing: ${packages[*]} (Debian's names; Java 17 or later, MariaDB 10.11 or later, Node 20 or later)."
      if have apt-get; then
        echo "Install with: sudo apt-get update && sudo apt-get install ${packages[*]}"
      else
        echo "Install them with your system's package manager and run this again; Maven then fetches Kafka's jars."
      fi
    } >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -q -y --no-install-recommends "${packages[@]}"
fi

# The cache directory of the Go code (cacheRoot in integration/stack/maven.go). If the system's cache directory is
# elsewhere, this only starts a Go program in vain.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kudos
[ "$(id -u)" = 0 ] && cache=/var/cache/kudos
version() { sed -n 's:^  <version>\(.*\)</version>$:\1:p' "integration/stack/$1/pom.xml"; }

# A joining node of a Galera cluster copies another's data by scripts. Debian has them in the package of the system
# service, which is not installed here: only the scripts are taken from it.
if have apt-get && ! have wsrep_sst_rsync && [ ! -d "$cache/wsrep" ]; then
  mkdir -p "$cache"
  unpacked=$(mktemp -d -p "$cache")
  trap 'rm -rf "$unpacked"' EXIT
  download() { (cd "$unpacked" && apt-get download -q mariadb-server); }
  { download || { apt-get update -q && download; }; } && dpkg -x "$unpacked"/mariadb-server_*.deb "$unpacked" &&
    mkdir -m 755 "$unpacked/wsrep" && mv "$unpacked"/usr/bin/wsrep_sst_* "$unpacked/wsrep" &&
    mv -T "$unpacked/wsrep" "$cache/wsrep" ||
    echo "integration/deps.sh: no wsrep_sst_rsync: the test with several nodes of Galera cannot run" >&2
fi

fetch=()
[ -d "$cache/kafka-$(version kafka)" ] || fetch=(-fetch)
if $with_mysql && [ ! -d "$cache/mysql-$(version mysql)" ]; then fetch=(-fetch -mysql); fi
if [ ${#fetch[@]} -gt 0 ]; then
  go run ./integration/cmd/stack "${fetch[@]}"
fi
