#!/usr/bin/env bash
# Brings what the tests on real servers need: Java, Maven, MariaDB, kcat, curl, valgrind, Redis (for the benchmarks' peer), Kafka's jars, Chromium and Node
# for those of the dashboard; and MySQL itself, some 550 MB, if called as `deps.sh mysql` or in CI. Installs as root on Debian and its kin; elsewhere it says what to install.
# Quick when all is there, so that every `make test` may call it.
set -euo pipefail
cd "$(dirname "$0")/.."

with_mysql=false
case "${1:-}" in
  mysql) with_mysql=true ;;
  "") [ "${CI:-}" = true ] && [ "$(uname -s)" = Linux ] && with_mysql=true ;;
  *) echo "usage: integration/deps.sh [mysql]" >&2; exit 2 ;;
esac

# A user's PATH may lack the directories that servers are installed to.
PATH="$PATH:/usr/sbin:/usr/local/sbin"
have() { command -v "$1" >/dev/null 2>&1; }

# The first number of Java's version, 0 without Java. JAVA_HOME wins over PATH, as in the Go code.
java_release() {
  local java=java release
  [ -n "${JAVA_HOME:-}" ] && java="$JAVA_HOME/bin/java"
  release=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p') || true
  echo "${release:-0}"
}

# The first number of Node's version, 0 without Node.
node_release() {
  local release
  release=$(node --version 2>/dev/null | sed -n 's/^v\([0-9]*\).*/\1/p') || true
  echo "${release:-0}"
}

packages=() # as Debian calls them
[ "$(java_release)" -ge 17 ] || packages+=(openjdk-17-jre-headless)
have mvn || packages+=(maven)
# The -core packages are the programs without the system service, which no test uses and which would start at boot.
{ have mariadbd && have mariadb-install-db && have mariadb; } || packages+=(mariadb-server-core mariadb-client-core)
have kcat || packages+=(kcat)
have curl || packages+=(curl)
[ "$(uname -s)" != Linux ] || have valgrind || packages+=(valgrind)
have redis-server || packages+=(redis-server) # a peer in the benchmarks
have chromium || have chromium-browser || have google-chrome || packages+=(chromium)
{ [ "$(node_release)" -ge 20 ] && have npm; } || packages+=(nodejs npm)
if $with_mysql; then # libraries that MySQL's server is linked to
  libraries=$(/sbin/ldconfig -p)
  [[ $libraries == *libaio.so.1* ]] || packages+=(libaio1)
  [[ $libraries == *libnuma.so.1* ]] || packages+=(libnuma1)
fi

if [ ${#packages[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ] || ! have apt-get; then
    {
      echo "integration/deps.sh: missing: ${packages[*]} (so named in Debian; Java 17 or later, MariaDB 10.11 or later, Node 20 or later)."
      if have apt-get; then
        echo "Install with: sudo apt-get update && sudo apt-get install ${packages[*]}"
      else
        echo "Install them with your system's package manager. Kafka's jars are then fetched by Maven."
      fi
    } >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -q -y --no-install-recommends "${packages[@]}"
fi

# Where the Go code caches (cacheRoot in integration/stack/maven.go). A directory that this does not find, because the
# system has another place for caches, costs the start of a Go program that finds it.
cache=${XDG_CACHE_HOME:-$HOME/.cache}/kudos
[ "$(id -u)" = 0 ] && cache=/var/cache/kudos
version() { sed -n 's:^  <version>\(.*\)</version>$:\1:p' "integration/stack/$1/pom.xml"; }

fetch=()
[ -d "$cache/kafka-$(version kafka)" ] || fetch=(-fetch)
if $with_mysql && [ ! -d "$cache/mysql-$(version mysql)" ]; then fetch=(-fetch -mysql); fi
if [ ${#fetch[@]} -gt 0 ]; then
  go run ./integration/cmd/stack "${fetch[@]}"
fi
