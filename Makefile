# Three tiers, each of which runs everything that the one before it runs: check, test, verify. `make help` lists the rest.

GO   ?= go
TOOL := $(GO) tool -modfile=tools/go.mod

# One compilation serves vet, staticcheck, the tests and the program that they start: without cgo and profile, as tests
# measure nothing and the program ships without cgo. Only the race detector needs another one.
# No debugger comes to them: without its tables a program is linked in half the time.
FLAGS := -pgo=off -ldflags=-w
export CGO_ENABLED ?= 0

# Modules of their own, because of what they import: the benchmark's peers; readers of alert rules and dashboards, and of
# what deploys kudos, that use the code of Prometheus, Kubernetes and BuildKit.
MODULES := integration/peers integration/promcheck integration/deploycheck
PEERS := integration/peers
# Ours in place of others' (go.mod, replace): ./... leaves them out.
REPLACED = $(if $(filter ./...,$(PKG)),github.com/DataDog/zstd github.com/dolthub/go-icu-regex)
# What to test: make test PKG=./processor/...
PKG ?= ./...
# Tests of a package that run in parallel wait more than they compute; of those with real servers four run at a time.
PARALLEL ?= 8

.DEFAULT_GOAL := build
.PHONY: help build generate lint generated deps check test verify verify-adds nightly vuln simulate regress mutants gremlins chaos fuzz facts bench pgo microbench creep stack screenshots streams modules

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' | expand -t 12

build: ## bin/kudos
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kudos .

generate: ## write the code that comes from the .proto files, and the drawing of the packages
	$(GO) generate ./schema
	KUDOS_TEST_WRITE=1 $(GO) test -count=1 -run '^TestPackagesAreDrawn$$' ./integration

deps: ## install what the tests need: as root on Debian; elsewhere it says what is missing
	integration/deps.sh

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then printf 'gofmt would change (fix: gofmt -w FILE):\n%s\n' "$$unformatted"; exit 1; fi
	$(GO) vet $(FLAGS) $(PKG) $(REPLACED)
	GOFLAGS="$$($(GO) env GOFLAGS) $(FLAGS)" $$($(TOOL) -n staticcheck) $(PKG) $(REPLACED)

# Into a folder beside, so that it fails and changes nothing.
generated: ## is the generated code that of the .proto files?
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && mkdir "$$fresh/out" && \
	(cd schema && $(GO) tool -modfile=../tools/go.mod buf generate -o "$$fresh/out") && \
	diff -ru schema/kudosv1 "$$fresh/schema/kudosv1" || \
	{ echo 'schema/kudosv1 is not what schema/proto gives (mend: make generate)'; exit 1; }

# vet has run by then. Results come from go's cache where nothing changed: these tests read nothing that go does not see.
check: lint ## before a commit, some 2 minutes: formatting, vet, staticcheck, import rules, all tests that need no servers
	KUDOS_TEST_TIER=check $(GO) test $(FLAGS) -vet=off -parallel $(PARALLEL) -timeout 10m $(PKG)

# Never from the cache of results: the integration tests run a program that go test does not know of. The browser, which
# computes most of all and times what its user sees, has the machine to itself.
BROWSER := kudos/integration/browser
test: deps lint ## before a change is offered, some 7 minutes: check, and the whole system on a real Kafka and MariaDB
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && export KUDOS_TEST_TIER=test KUDOS_TEST_PROGRAM="$$dir/kudos" && \
	packages=$$($(GO) list $(PKG)) && others=$$(echo "$$packages" | grep -vx $(BROWSER) || true) && \
	$(GO) build $(FLAGS) -o "$$KUDOS_TEST_PROGRAM" . && \
	{ [ -z "$$others" ] || $(GO) test $(FLAGS) -vet=off -count=1 -parallel $(PARALLEL) -timeout 20m $$others; } && \
	{ [ "$$others" = "$$packages" ] || $(GO) test $(FLAGS) -vet=off -count=1 -timeout 20m $(BROWSER); }

verify: test verify-adds ## everything there is, some 30 minutes: race detector, every park, walk-throughs, image, peers, fuzz

# What CI runs after `make test`. The race detector sees every package, and then the program itself on real servers, in
# tests that kill and restart it: a race ends it, and so fails them. The rest, which computes a lot, is without it.
RACE_SYSTEM := 'TestCountsAreExactWhenProcessorsAreKilled|TestReadersShowTransactionsWhole|TestOneLikeIsTraced|TestARollingRestartLosesNothing'
VERIFY = $(if $(filter ./...,$(PKG)),$$(grep -rlE --include=*_test.go 'tier\.(Verify|Size)\b' . | xargs -n1 dirname | sort -u | grep -vx ./integration/tier),$(PKG))
verify-adds: deps generated vuln
	KUDOS_TEST_TIER=check CGO_ENABLED=1 $(GO) test -race $(FLAGS) -vet=off -parallel $(PARALLEL) -timeout 20m $(PKG)
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && export KUDOS_TEST_PROGRAM="$$dir/kudos" && set -x && \
	CGO_ENABLED=1 $(GO) build -race $(FLAGS) -o "$$KUDOS_TEST_PROGRAM" . && \
	GORACE=halt_on_error=1 $(GO) test $(FLAGS) -vet=off -count=1 -timeout 20m -run $(RACE_SYSTEM) ./integration && \
	$(GO) build $(FLAGS) -o "$$KUDOS_TEST_PROGRAM" . && \
	KUDOS_TEST_TIER=verify-adds $(GO) test $(FLAGS) -vet=off -count=1 -parallel $(PARALLEL) -timeout 40m $(VERIFY)
	@$(MAKE) --no-print-directory modules
	@$(MAKE) --no-print-directory streams
	@$(MAKE) --no-print-directory fuzz FUZZTIME=20000x

nightly: ## what takes hours: facts, mutants, chaos, a million schedules, kudos dev for an hour
	@$(MAKE) --no-print-directory facts
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory gremlins
	@$(MAKE) --no-print-directory chaos FAULTS=200
	@$(MAKE) --no-print-directory simulate SCHEDULES=1000000
	KUDOS_TEST_SOAK=60m $(GO) test -count=1 -timeout 90m -v -run '^TestDevSoak$$' ./cli

# NAME= is one of cases.txt; without it they are listed.
regress: ## one failure that was once found, replayed: make regress NAME=far-min-offset
	@$(GO) run ./integration/cmd/regress $(NAME)

modules:
	@staticcheck=$$($(TOOL) -n staticcheck) && for module in $(MODULES); do echo "$$module" && \
	(cd $$module && $(GO) vet ./... && $$staticcheck ./... && $(GO) test -vet=off -count=1 -timeout 20m ./...) || exit 1; done

# With its version govulncheck tells when the database was updated, if it can be reached.
vuln: ## does the program call anything that is known to be vulnerable?
	@govulncheck=$$($(TOOL) -n govulncheck) && \
	if $$govulncheck -version | grep -q '^DB updated:'; then $$govulncheck ./...; \
	else echo 'vuln: the vulnerability database cannot be reached: nothing was checked'; fi

# Offline first, which takes no look at the network; what it says is only shown if the second try fails as well.
streams: ## tests of the Kafka Streams peer, in Java
	@cd integration/peers/streams && { mvn -q -o test >/dev/null 2>&1 || mvn -q test; } && echo 'ok	integration/peers/streams'

# SEED is that of the first schedule. SEED=n REPLAY=1 runs that one only, and prints each step; SCRIPT=file replays a script
# that a failing schedule was reduced to.
SCHEDULES ?= 100000
SEED ?= 1
simulate: ## SCHEDULES of our own workers among models of Kafka and MySQL: crashes, zombies, lost commits …
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(GO) test -c -o "$$dir/simulation" ./integration/simulation && \
	"$$dir/simulation" -test.v -test.timeout 0 $(if $(SCRIPT),-test.run '^TestScripts$$' -script $(abspath $(SCRIPT)),\
	-test.run '^TestSchedules$$' -schedules $(SCHEDULES) -seed $(SEED) -tally $(if $(REPLAY),-replay))

mutants: ## takes each clause of the rules out of the program, one at a time: is a test there that notices?
	$(GO) run ./integration/cmd/mutants

# More for it: go run ./integration/cmd/gremlins -help
gremlins: ## a sample of 400 changed operators in the packages that keep counts exact: do their own tests notice?
	$(GO) run ./integration/cmd/gremlins

# The corpora under testdata/fuzz are part of every `make check`. CI fuzzes a number of inputs: a time may fail with
# "context deadline exceeded" where nothing was found (go.dev/issue/75804, to Go 1.26).
FUZZTIME ?= 1m
FUZZ_PKG ?= ./schema ./producer ./producer/importer ./processor/fold/classify
fuzz: ## new inputs for every decoder and the HTTP API, FUZZTIME each (a time, or 20000x: so many of them)
	@for pkg in $(FUZZ_PKG); do for target in $$($(GO) test $$pkg -list '^Fuzz' | grep '^Fuzz'); do \
	echo "$$pkg $$target"; $(GO) test $$pkg -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) || exit 1; done; done

FAULTS ?= 200
SEED ?= 1
# More for it: make chaos FAULTS=1000 CHAOS='-for 1h' (go run ./integration/cmd/chaos -help)
CHAOS ?=
chaos: deps ## break real servers FAULTS times, and compare all counts after each few; report in docs/reliability.*
	$(GO) run ./integration/cmd/chaos -faults $(FAULTS) -seed $(SEED) -report docs/reliability.json -table docs/reliability.md $(CHAOS)

facts: ## what a real broker does over a long time: half an hour
	KUDOS_TEST_TIER=nightly $(GO) test -count=1 -timeout 90m -v ./integration -run 'TestEpochsRunOut|TestCoordinatorsMove|TestCompactionWhileRunning|TestCommittedOffsetsExpire|TestTransactionRate|TestRecoveryTime|TestADayOfTenMillionUpdates'

# More for it: make bench BENCH='-contenders kudos,redis -shapes hot -rounds 3' (go run ./integration/cmd/bench -help)
BENCH ?=
bench: deps ## kudos and what people would pick instead, on real servers: hours; report in docs/benchmarks.*
	$(GO) run ./integration/cmd/bench -json docs/benchmarks.json -markdown docs/benchmarks.md $(BENCH)

# `go build` compiles by the default.pgo beside main.go; what does not match it any more it ignores.
pgo: deps ## default.pgo made again: what the processor spends its time on at three workloads, some five minutes
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	$(GO) run ./integration/cmd/bench -contenders kudos -shapes hot,skewed-1000,skewed-1000000 -measure drain -rounds 1 -profiles "$$dir" && \
	$(GO) tool pprof -proto -output default.pgo "$$dir"/*.pprof

microbench: ## Go benchmarks, with allocations
	$(GO) test -run '^$$' -bench . -benchmem $(PKG)

creep: deps ## record what an event costs in instructions and allocations: `make test` fails far from it
	$(GO) test -count=1 -v ./integration/creep -run '^TestNoCreep$$' -record

screenshots: deps ## docs/images: the dashboard while `kudos dev` simulates likes, some three minutes
	KUDOS_TEST_SCREENSHOTS=$(CURDIR)/docs/images $(GO) test -count=1 -timeout 15m -v ./integration/browser -run '^TestScreenshots$$'

stack: ## a real Kafka and MariaDB on this machine, to play with, until Ctrl-C
	$(GO) run ./integration/cmd/stack
