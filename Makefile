# `make test` is what CI runs; `make help` lists the rest.

GO   ?= go
TOOL := $(GO) tool -modfile=tools/go.mod

# Longer than the suite needs, shorter than a hang may last.
TEST_TIMEOUT ?= 60m
# The peers of the benchmark: a module of its own, checked with all of the program.
PEERS := integration/bench/peers
# Reads alert rules and dashboards as Prometheus does: likewise, because of what that takes.
PROMCHECK := integration/promcheck
# Reads what is shipped to deploy kudos as Kubernetes and BuildKit do: likewise.
DEPLOYCHECK := integration/deploycheck
# What to test: make test PKG=./processor/...
PKG ?= ./...

.DEFAULT_GOAL := build
.PHONY: help build generate lint generated deps test vuln simulate mutants chaos fuzz facts bench pgo microbench creep stack screenshots streams

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' | expand -t 12

build: ## bin/kudos
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/kudos .

generate: ## write the code that comes from the .proto files
	$(GO) generate ./schema

deps: ## install what the tests need: as root on Debian; elsewhere it says what is missing
	integration/deps.sh

# With -race and without the profile like the tests, so that one compilation serves vet, staticcheck and them.
lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then printf 'gofmt would change (mend: gofmt -w FILE):\n%s\n' "$$unformatted"; exit 1; fi
	$(GO) vet -race -pgo=off $(PKG)
	GOFLAGS="$$($(GO) env GOFLAGS) -race -pgo=off" $$($(TOOL) -n staticcheck) $(PKG)
	$(if $(filter ./...,$(PKG)),staticcheck=$$($(TOOL) -n staticcheck) && cd $(PEERS) && $(GO) vet -race ./... && GOFLAGS="$$($(GO) env GOFLAGS) -race" $$staticcheck ./...)
	$(if $(filter ./...,$(PKG)),staticcheck=$$($(TOOL) -n staticcheck) && cd $(PROMCHECK) && $(GO) vet ./... && $$staticcheck ./...)
	$(if $(filter ./...,$(PKG)),staticcheck=$$($(TOOL) -n staticcheck) && cd $(DEPLOYCHECK) && $(GO) vet ./... && $$staticcheck ./...)

# Into a folder beside, so that it fails and changes nothing.
generated: ## is the generated code that of the .proto files?
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && mkdir "$$fresh/out" && \
	(cd schema && $(GO) tool -modfile=../tools/go.mod buf generate -o "$$fresh/out") && \
	diff -ru schema/kudosv1 "$$fresh/schema/kudosv1" || \
	{ echo 'schema/kudosv1 is not what schema/proto gives (mend: make generate)'; exit 1; }

# vet has run by then. Never from the cache of results: the integration tests run a
# program that go test does not know of.
test: deps lint generated ## all checks and the whole suite, with the race detector
	$(GO) test -race -pgo=off -vet=off -count=1 -timeout $(TEST_TIMEOUT) $(PKG)
	$(if $(filter ./...,$(PKG)),$(GO) test -vet=off -count=1 ./integration/simulation) # 20,000 schedules: without the detector
	$(if $(filter ./...,$(PKG)),cd $(PEERS) && $(GO) test -race -vet=off -count=1 -timeout $(TEST_TIMEOUT) ./...)
	$(if $(filter ./...,$(PKG)),@$(MAKE) --no-print-directory streams)

# With its version govulncheck tells when the database was updated, if it can be reached.
vuln: ## does the program call anything that is known to be vulnerable?
	@govulncheck=$$($(TOOL) -n govulncheck) && \
	if $$govulncheck -version | grep -q '^DB updated:'; then $$govulncheck ./...; \
	else echo 'vuln: the vulnerability database cannot be reached: nothing was checked'; fi

# Offline first, which takes no look at the network; what it says is only shown if the second try fails as well.
streams: ## tests of the Kafka Streams peer, in Java
	@cd integration/bench/peers/streams && { mvn -q -o test >/dev/null 2>&1 || mvn -q test; } && echo 'ok	integration/bench/peers/streams'

# SEED is that of the first schedule. SEED=n REPLAY=1 runs that one only, and prints each step.
SCHEDULES ?= 100000
SEED ?= 1
simulate: ## SCHEDULES of our own workers among models of Kafka and MySQL: crashes, zombies, lost commits …
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(GO) test -c -o "$$dir/simulation" ./integration/simulation && \
	"$$dir/simulation" -test.v -test.timeout 0 -test.run '^TestSchedules$$' -schedules $(SCHEDULES) -seed $(SEED) -tally $(if $(REPLAY),-replay)

mutants: ## takes each clause of the rules out of the program, one at a time: is a test there that notices?
	$(GO) run ./integration/cmd/mutants

# The corpora under testdata/fuzz are part of every `make test`.
FUZZTIME ?= 1m
FUZZ_PKG ?= ./schema ./producer ./producer/importer ./processor
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
	KUDOS_TEST_FACTS=1 $(GO) test -count=1 -timeout 90m -v ./integration -run 'TestEpochsRunOut|TestCoordinatorsMove|TestCompactionWhileRunning|TestCommittedOffsetsExpire|TestTransactionRate|TestRecoveryTime|TestADayOfTenMillionUpdates'

# More for it: make bench BENCH='-contenders kudos,redis -shapes hot -rounds 3' (go run ./integration/cmd/bench -help)
BENCH ?=
bench: deps ## kudos and what people would pick instead, on real servers: hours; report in docs/benchmarks.*
	$(GO) run ./integration/cmd/bench -json docs/benchmarks.json -markdown docs/benchmarks.md $(BENCH)

# `go build` compiles by the default.pgo beside main.go; what does not match it any more it ignores.
pgo: deps ## default.pgo anew: what the processor spends its time on at three workloads, some five minutes
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
