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
check-vet: ## go vet, and the check that workflow code is deterministic
	$(GO) vet $(PKGS)
	$(GO) build -C tools/workflowcheck -o $(CURDIR)/bin/workflowcheck go.temporal.io/sdk/contrib/tools/workflowcheck
	bin/workflowcheck -show-pos ./workflows/...

.PHONY: check-generated
check-generated: ## fail where generated code is not what the SQL says
	$(SQLC) diff

.PHONY: check
check: check-format check-modules check-vet check-generated ## every check that runs no test

.PHONY: test
test: ## every test, with the race detector; starts all that it needs
	$(GO) test -race -timeout 20m $(TESTARGS) $(PKGS)

.PHONY: bench
bench: ## the benchmarks, for benchstat
	$(GO) test -run '^$$' -bench . -benchmem -count 1 ./lockorder/...

.PHONY: mutants
mutants: ## plant each known mistake in lockorder and see a test fail; takes some minutes
	$(GO) test ./lockorder -count 1 -run TestMutants -v -timeout 30m -args -mutants

.PHONY: record
record: ## record the workflow histories that the tests replay
	$(GO) test ./workflows -run TestRecordHistories -count 1 -args -record

.PHONY: ci
ci: setup check test ## what CI runs: the checks, cheapest first, then every test
