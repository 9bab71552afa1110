# Three tiers, each of which includes the one before it: check, test, verify. `make help` lists all targets.

GO   ?= go
TOOL := $(GO) tool -modfile=tools/go.mod

# The same flags for vet, staticcheck, the tests and the program that they start, so that Go compiles everything once:
# no cgo, as in the released program, and no profile, since tests measure nothing. Only the race detector needs another
# build. -w omits the debug tables, which halves the link time.
FLAGS := -pgo=off -ldflags=-w
export CGO_ENABLED ?= 0

# Separate modules, because of their dependencies: what only releases have, the benchmark peers, and checkers of alert
# rules, dashboards and deployment files that use the code of Prometheus, Kubernetes, Helm and BuildKit.
MODULES := cli/full cli/lake clients/go integration/peers integration/promcheck integration/deploycheck
PEERS := integration/peers
# Our replacements of other modules (replace in go.mod), which ./... does not include.
REPLACED = $(if $(filter ./...,$(PKG)),github.com/DataDog/zstd github.com/dolthub/go-icu-regex)
# What to test: make test PKG=./processor/...
PKG ?= ./...
# Parallel tests of a package wait more than they compute. At most four with real servers run concurrently.
PARALLEL ?= 8

.DEFAULT_GOAL := build
.PHONY: help build iceberg generate lint generated deps check test verify verify-adds nightly vuln simulate regress mutants gremlins chaos fuzz facts bench pgo microbench creep stack screenshots streams modules package snapshot openapi clients

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' | expand -t 12

build: ## bin/kudos, as released
	CGO_ENABLED=0 $(GO) build -C cli/full -trimpath -o ../../bin/kudos .

iceberg: ## bin/kudos-iceberg, as released
	CGO_ENABLED=0 $(GO) build -C cli/lake -trimpath -o ../../bin/kudos-iceberg .

generate: ## generate code from the .proto files, and the diagram of the packages
	$(GO) generate ./schema
	KUDOS_TEST_WRITE=1 $(GO) test -count=1 -run '^TestPackagesAreDrawn$$' ./integration

deps: ## install what the tests need if root on Debian; elsewhere print what is missing
	integration/deps.sh

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then printf 'gofmt would change (fix: gofmt -w FILE):\n%s\n' "$$unformatted"; exit 1; fi
	$(GO) vet $(FLAGS) $(PKG) $(REPLACED)
	GOFLAGS="$$($(GO) env GOFLAGS) $(FLAGS)" $$($(TOOL) -n staticcheck) $(PKG) $(REPLACED)

# Into a temporary directory, so that it changes nothing if it fails.
generated: ## check that the generated code matches the .proto files
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && mkdir "$$fresh/out" && \
	(cd schema && $(GO) tool -modfile=../tools/go.mod buf generate -o "$$fresh/out") && \
	diff -ru schema/kudosv1 "$$fresh/schema/kudosv1" || \
	{ echo 'schema/kudosv1 does not match schema/proto (fix: make generate)'; exit 1; }

# lint has run vet already. Cached results are valid: go tracks everything that these tests read.
check: lint ## before a commit, some 2 minutes: formatting, vet, staticcheck, import rules, all tests without servers
	KUDOS_TEST_TIER=check $(GO) test $(FLAGS) -vet=off -parallel $(PARALLEL) -timeout 10m $(PKG)

# Without cached results: the integration tests run a program that go test does not track. The browser test runs alone,
# because it needs the most CPU and measures latency.
BROWSER := kudos/integration/browser
test: deps lint ## before you propose a change, some 5 minutes: check, and the whole system on a real Kafka and MariaDB
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && export KUDOS_TEST_TIER=test KUDOS_TEST_PROGRAM="$$dir/kudos" && \
	packages=$$($(GO) list $(PKG)) && others=$$(echo "$$packages" | grep -vx $(BROWSER) || true) && \
	$(GO) build $(FLAGS) -o "$$KUDOS_TEST_PROGRAM" . && \
	{ [ -z "$$others" ] || $(GO) test $(FLAGS) -vet=off -count=1 -parallel $(PARALLEL) -timeout 20m $$others; } && \
	{ [ "$$others" = "$$packages" ] || $(GO) test $(FLAGS) -vet=off -count=1 -timeout 20m $(BROWSER); }

verify: test verify-adds ## before a release, some 27 minutes: also race detector, every park, walk-throughs, image, peers, fuzzing

# What CI runs after `make test`: first the modules, which the tests of all then find compiled. The race detector runs on
# every package, and then on the program with real servers, in tests that kill and restart it: a race exits the program,
# so the test fails. The CPU-intensive rest runs without it.
RACE_SYSTEM := 'TestCountsAreExactWhenProcessorsAreKilled|TestReadersShowTransactionsWhole|TestOneLikeIsTraced|TestRollingRestartLosesNothing'
VERIFY = $(if $(filter ./...,$(PKG)),$$(grep -rlE --include=*_test.go 'tier\.(Verify|Size|Turn)\b' . | xargs -n1 dirname | sort -u | grep -vx ./integration/tier),$(PKG))
verify-adds: deps generated vuln
	@$(MAKE) --no-print-directory modules
	@$(GO) build -C integration/s3server $(FLAGS) -o /dev/null . # so that the tests that need it compile nothing
	KUDOS_TEST_TIER=check CGO_ENABLED=1 $(GO) test -race -short $(FLAGS) -vet=off -parallel $(PARALLEL) -timeout 20m $(PKG)
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && export KUDOS_TEST_PROGRAM="$$dir/kudos" && set -x && \
	CGO_ENABLED=1 $(GO) build -race $(FLAGS) -o "$$KUDOS_TEST_PROGRAM" . && \
	$(if $(CI),KUDOS_TEST_EVENTS=300000 KUDOS_TEST_KILLS=8) GORACE=halt_on_error=1 \
	$(GO) test $(FLAGS) -vet=off -count=1 -timeout 20m -run $(RACE_SYSTEM) ./integration && \
	$(GO) build $(FLAGS) -o "$$KUDOS_TEST_PROGRAM" . && \
	KUDOS_TEST_TIER=verify-adds $(GO) test $(FLAGS) -vet=off -count=1 -parallel $(PARALLEL) -timeout 60m $(VERIFY)
	@$(MAKE) --no-print-directory streams
	@$(MAKE) --no-print-directory package
	@$(MAKE) --no-print-directory openapi
	@$(MAKE) --no-print-directory clients
	@$(MAKE) --no-print-directory fuzz FUZZTIME=20000x

nightly: ## everything that takes hours: facts, mutants, chaos, a million schedules, kudos dev for an hour; all of a release
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && tools/site/build.sh "$$dir/site"
	@$(MAKE) --no-print-directory snapshot
	@$(MAKE) --no-print-directory facts
	@$(MAKE) --no-print-directory mutants
	@$(MAKE) --no-print-directory gremlins
	@$(MAKE) --no-print-directory chaos FAULTS=200
	@$(MAKE) --no-print-directory simulate SCHEDULES=1000000
	KUDOS_TEST_SOAK=60m $(GO) test -count=1 -timeout 90m -v -run '^TestDevSoak$$' ./cli

regress: ## replay a past failure: make regress NAME=far-min-offset
	@integration/regress.sh $(NAME)

package: deps ## build the Debian package, install it, like a post in a browser, remove it (root on Debian)
	@cd integration/browser && npm ci --ignore-scripts --no-audit --no-fund --prefer-offline >/dev/null
	@KUDOS_CHROMIUM=$$(command -v chromium || command -v chromium-browser || command -v google-chrome) \
	deploy/package/check.sh sh -c 'node integration/browser/first-like.mjs "$$DEB"'

openapi: deps ## compare the OpenAPI documents with the standard and with what kudos serves, some 2 minutes; EXAMPLES=1000 SEED=7: more
	@tools/openapi/check.sh

clients: deps ## build the clients, run their tests, the conformance cases and their examples, some 2 minutes
	@clients/check.sh

snapshot: ## build all that a release has, without publishing: 6 targets, packages, checksums, SBOMs
	@deploy/package/snapshot.sh

modules:
	@staticcheck=$$($(TOOL) -n staticcheck) && export GOFLAGS=-pgo=off && for module in $(MODULES); do echo "$$module" && \
	(cd $$module && $(GO) vet ./... && $$staticcheck ./... && $(GO) test -vet=off -count=1 -timeout 20m ./...) || exit 1; done

# govulncheck -version shows the age of the vulnerability database if it can be reached.
vuln: ## check whether the program calls code with known vulnerabilities
	@govulncheck=$$($(TOOL) -n govulncheck) && \
	if $$govulncheck -version | grep -q '^DB updated:'; then $$govulncheck ./... && $$govulncheck -C cli/full ./... && $$govulncheck -C cli/lake ./...; \
	else echo 'vuln: cannot reach the vulnerability database: nothing was checked'; fi

# Offline first, which is faster; its output is discarded. If it fails, the second run shows what is wrong.
streams: ## run the tests of the Kafka Streams peer (Java)
	@cd integration/peers/streams && { mvn -q -o test >/dev/null 2>&1 || mvn -q test; } && echo 'ok	integration/peers/streams'

# SEED is the seed of the first schedule. SEED=n REPLAY=1 runs only that one and prints each step; SCRIPT=file replays a
# script to which a failing schedule was reduced.
# With RECORD=file, it continues after the schedules that the file has of the same build and seed, and adds to them.
SCHEDULES ?= 100000
SEED ?= 1
# What the reports of several runs of chaos and simulation must have in common to add up: all files of the program and
# of the simulation.
BUILT := . ':!docs' ':!*.md' ':!*_test.go' ':!integration/chaos' ':!integration/cmd' ':!deploy' ':!tools' ':!Makefile' ':!.ci'
BUILD = $(shell git ls-files -s -- $(BUILT) | git hash-object --stdin | cut -c1-10)$(MODIFIED)
MODIFIED = $(shell git diff --quiet HEAD -- $(BUILT) || date +-modified-%s)
simulate: ## run SCHEDULES of the real workers on models of Kafka and MySQL: crashes, zombies, lost commits …
	@$(if $(RECORD),integration/simulate.sh "$(SCHEDULES)" "$(SEED)" "$(BUILD)" "$(RECORD)"; exit $$?;) \
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(GO) test -c -o "$$dir/simulation" ./integration/simulation && \
	"$$dir/simulation" -test.v -test.timeout 0 $(if $(SCRIPT),-test.run '^TestScripts$$' -script $(abspath $(SCRIPT)),\
	-test.run '^TestSchedules$$' -schedules $(SCHEDULES) -seed $(SEED) -tally $(if $(REPLAY),-replay))

mutants: ## remove each clause of the rules, one at a time: does a test fail?
	$(GO) run ./integration/cmd/mutants

# More options: go run ./integration/cmd/gremlins -help
gremlins: ## change 400 operators in the packages that keep counts exact: do tests of the same package fail?
	$(GO) run ./integration/cmd/gremlins

# Every `make check` runs the corpora in testdata/fuzz. CI fuzzes a number of inputs: with a duration, fuzzing can fail
# with "context deadline exceeded" although it found nothing (go.dev/issue/75804, up to Go 1.26).
FUZZTIME ?= 1m
FUZZ_PKG ?= $$(grep -rl --include=*_test.go '^func Fuzz' . | xargs -n1 dirname | sort -u)
fuzz: ## fuzz every decoder and the HTTP API for FUZZTIME each (a duration, or 20000x for a number of inputs)
	@for pkg in $(FUZZ_PKG); do targets=$$($(GO) test $(FLAGS) -vet=off -list '^Fuzz' $$pkg) || { echo "$$targets"; exit 1; }; \
	for target in $$(echo "$$targets" | grep '^Fuzz'); do \
	echo "$$pkg $$target"; \
	$(GO) test $(FLAGS) -vet=off -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; done; done

FAULTS ?= 200
SEED ?= 1
# More options: make chaos FAULTS=1000 CHAOS='-for 1h' (go run ./integration/cmd/chaos -help)
CHAOS ?=
chaos: deps ## inject FAULTS faults into real servers and compare all counts after every few; report in docs/reliability.*
	$(GO) run ./integration/cmd/chaos -faults $(FAULTS) -seed $(SEED) -build "$(BUILD)" -report docs/reliability.json -table docs/reliability.md $(CHAOS)

facts: ## check the long-term behavior of a real broker: half an hour
	KUDOS_TEST_TIER=nightly $(GO) test -count=1 -timeout 90m -v ./integration -run 'TestEpochsRunOut|TestCoordinatorsMove|TestCompactionWhileRunning|TestCommittedOffsetsExpire|TestMigrationOfAMillionRows|TestADayOfTenMillionUpdates'

# More options: make bench BENCH='-contenders kudos,redis -shapes hot -rounds 3' (go run ./integration/cmd/bench -help)
BENCH ?=
bench: deps ## benchmark kudos and its alternatives on real servers: hours; report in docs/benchmarks.*
	$(GO) run ./integration/cmd/bench -json docs/benchmarks.json -markdown docs/benchmarks.md $(BENCH)

# `go build` uses the default.pgo next to main.go; it ignores entries that no longer match the code.
pgo: deps ## profile the processor at three workloads and write default.pgo, some 5 minutes
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	$(GO) run ./integration/cmd/bench -contenders kudos -shapes hot,skewed-1000,skewed-1000000 -measure drain -rounds 1 -profiles "$$dir" && \
	$(GO) tool pprof -proto -output default.pgo "$$dir"/*.pprof

microbench: ## run the Go benchmarks, with allocations
	$(GO) test -run '^$$' -bench . -benchmem $(PKG)

creep: deps ## record the instructions and allocations per event; `make test` fails if they differ much
	$(GO) test -count=1 -v ./integration/creep -run '^TestNoCreep$$' -record

screenshots: deps ## write docs/images: the dashboard while `kudos dev` simulates likes, some 3 minutes
	KUDOS_TEST_SCREENSHOTS=$(CURDIR)/docs/images $(GO) test -count=1 -timeout 15m -v ./integration/browser -run '^TestScreenshots$$'

stack: ## run a real Kafka and MariaDB on this machine until Ctrl-C
	$(GO) run ./integration/cmd/stack
