# Two commands do it all: `go run ./cmd/firn serve`, and `make test`.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
CACHE       := $(CURDIR)/.cache
TALLY       := $(CACHE)/tally
export FIRN_CACHE ?= $(CACHE)

UNIT        := $(shell go list ./... 2>/dev/null | grep -v -e /e2e -e /cmd/)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@latest

.PHONY: help build test setup lint unit sim e2e cross vuln bench checker kills mutants minio cluster long fuzz clean

help: ## what there is
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

build: ## the binary, in ./bin/firn
	go build -o bin/firn ./cmd/firn

test: ## install what is missing, then run everything
	@rm -rf $(TALLY); mkdir -p $(TALLY)
	@go build -o $(CACHE)/bin/tally ./e2e/tally
	@e2e/setup.sh
	@failed=0; for stage in lint cross unit sim e2e vuln; do \
	  $(MAKE) --no-print-directory $$stage || failed=1; done; \
	  $(CACHE)/bin/tally -dir $(TALLY) -sum

$(CACHE)/bin/tally: $(wildcard e2e/tally/*.go)
	@mkdir -p $(CACHE)/bin && go build -o $@ ./e2e/tally

lint: $(CACHE)/bin/tally ## gofmt, vet, staticcheck
	@$< -dir $(TALLY) gofmt -- sh -c 'out=$$(gofmt -l $$(git ls-files "*.go")); echo "$$out"; test -z "$$out"'
	@$< -dir $(TALLY) vet -- go vet ./...
	@$< -dir $(TALLY) staticcheck -- go run $(STATICCHECK) ./...

cross: $(CACHE)/bin/tally ## builds on every platform
	@for p in linux/arm64 darwin/amd64 darwin/arm64; do \
	  $< -dir $(TALLY) cross-$${p/\//-} -- env CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go build -o /dev/null ./cmd/firn; done

unit: $(CACHE)/bin/tally ## unit tests under the race detector
	@$< -dir $(TALLY) unit -- env FIRN_REQUIRE=all go test -race -json -timeout 20m $(UNIT)

sim: $(CACHE)/bin/tally ## a cluster of production code on a model of the world, 1 000 seeds
	@$< -dir $(TALLY) sim -- go run ./e2e/sim -count 1000

e2e: $(CACHE)/bin/tally ## real processes, real clients, real stores
	@$< -dir $(TALLY) e2e -- env FIRN_REQUIRE=all go test -json -p 1 -timeout 45m ./cmd/... ./e2e/...

vuln: $(CACHE)/bin/tally ## govulncheck, where its database can be reached
	@if curl -sfm 10 -o /dev/null https://vuln.go.dev/index/modules.json; then \
	  $< -dir $(TALLY) govulncheck -- go run $(GOVULNCHECK) ./...; \
	else echo "== govulncheck: its database can't be reached from here, not run"; fi

checker: ## ten minutes of faults on real processes, every promise checked: ARGS="-seed 7 -slice 4m"
	@e2e/setup.sh minio
	go run ./e2e/chaos $(ARGS)

kills: ## 200 kills of leader, follower and controller in turn
	@e2e/setup.sh minio
	go run ./e2e/chaos -kills 200 -duration 30m $(ARGS)

long: ## what takes minutes: outages of ZooKeeper, thousands of partitions, slow sessions: ARGS="-run Quorum"
	go test -tags long -run '^TestLong' -v -timeout 30m ./e2e $(ARGS)

mutants: ## the product broken on purpose, a line at a time; each must be noticed
	go run ./e2e/mutants $(ARGS)

bench: ## the load harness: ours, the probe and Apache Kafka taking turns
	e2e/bench/run.sh

minio: ## MinIO on loopback with a bucket, and the line that archives into it
	@e2e/setup.sh minio
	@deploy/minio.sh

cluster: ## three brokers, ZooKeeper and MinIO on loopback, until Ctrl-C
	@e2e/setup.sh debian minio
	@deploy/cluster.sh

fuzz: ## every fuzz target for a minute
	@for pkg in $$(go list ./...); do \
	  for f in $$(go test -list '^Fuzz' $$pkg 2>/dev/null | grep ^Fuzz || true); do \
	    echo "== $$pkg $$f"; go test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-60s} $$pkg; done; done

clean: ## what was built and fetched, and the data of make minio and make cluster
	rm -rf bin $(CACHE)
