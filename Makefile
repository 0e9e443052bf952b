# Everything that a developer of Bursar runs by name. CI runs `make ci`, which is the README's test command.

GO       ?= go
SQLC     := $(GO) tool -modfile=tools/sqlc/go.mod sqlc
PKGS     := ./...
TESTARGS ?=

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

.PHONY: dev
dev: ## run everything on this machine and play the story
	$(GO) run ./cmd/bursar dev

.PHONY: setup
setup: ## install what the tests need and is missing, where that can be done
	@tools/setup.sh

.PHONY: build
build: ## build bin/bursar
	$(GO) build -trimpath -o bin/bursar ./cmd/bursar

.PHONY: generate
generate: ## generate the query packages from the SQL
	$(SQLC) generate

.PHONY: check-format
check-format: ## fail where gofmt would change something
	@out="$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go'))"; \
	if [ -n "$$out" ]; then echo "gofmt would change:"; echo "$$out"; exit 1; fi

.PHONY: check-modules
check-modules: ## fail where go.mod and go.sum are not tidy
	$(GO) mod tidy -diff
	$(GO) mod verify >/dev/null

.PHONY: check-vet
check-vet: ## go vet, and the checks that locks keep their order and workflow code is deterministic
	$(GO) vet $(PKGS)
	$(GO) build -trimpath -buildvcs=false -o bin/lockordervet ./lockorder/lockordervet/cmd/lockordervet
	$(GO) vet -vettool=bin/lockordervet $(PKGS)
	bin/lockordervet sql .
	$(GO) build -C tools/workflowcheck -o $(CURDIR)/bin/workflowcheck go.temporal.io/sdk/contrib/tools/workflowcheck
	bin/workflowcheck -show-pos ./workflows/...

.PHONY: check-generated
check-generated: ## fail where generated code is not what the SQL says
	$(SQLC) diff

.PHONY: check-locks
check-locks: ## fail where lockorder/LOCKS.md is not what the classes and paths say
	$(GO) run ./internal/lockdoc drift

.PHONY: check
check: check-format check-modules check-vet check-generated check-locks ## every check that runs no test

# Where tests leave the order of the locks that they saw. A run has a folder of its own, so that none is taken from the cache
# of go test without leaving its part. Where not all tests run, what was not seen is no mistake.
ORDER := $(CURDIR)/bin/order-graph
PART  := $(if $(TESTARGS)$(filter-out ./...,$(PKGS)),-part)

.PHONY: test
test: ## every test, with the race detector, then the order of their locks; starts all that it needs
	@mkdir -p $(ORDER) && find $(ORDER) -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} +
	@dir="$$(mktemp -d $(ORDER)/run.XXXXXX)" && set -x && \
	BURSAR_ORDER_GRAPH_DIR="$$dir" $(GO) test -race -timeout 40m $(TESTARGS) $(PKGS) && \
	$(GO) run ./internal/lockdoc check $(PART) "$$dir"

.PHONY: locks
locks: ## record the locks that the last make test saw, and write lockorder/LOCKS.md
	@dir="$$(ls -td $(ORDER)/run.* 2>/dev/null | head -n 1)"; set -x; \
	if [ -n "$$(ls -A "$$dir" 2>/dev/null)" ]; then $(GO) run ./internal/lockdoc record "$$dir"; else $(GO) run ./internal/lockdoc page; fi

.PHONY: bench
bench: ## the benchmarks, for benchstat
	$(GO) test -run '^$$' -bench . -benchmem -count 1 ./lockorder/... ./entitlements ./activities

.PHONY: mutants
mutants: ## plant each known mistake in lockorder and see a test fail; takes some minutes
	$(GO) test ./lockorder -count 1 -run TestMutants -v -timeout 30m -args -mutants

.PHONY: record
record: ## record the workflow histories that the tests replay
	$(GO) test ./workflows -run TestRecordHistories -count 1 -args -record

.PHONY: ci
ci: setup check test ## what CI runs: the checks, cheapest first, then every test
