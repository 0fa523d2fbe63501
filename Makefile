# make prints its targets.
GO ?= go
KIT ?= ../shared/conformance

.PHONY: help
help: ## print the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install what is missing on a Debian-like machine (needs root)
	@test/deps

.PHONY: build
build: ## build bin/proa
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags=-s -o bin/proa ./cmd/proa

.PHONY: up
up: deps build ## install what is missing, build, start a cluster with a small web application
	bin/proa up --demo

.PHONY: down
down: ## stop the cluster and leave nothing behind
	bin/proa down

.PHONY: test
test: deps build ## every test: unit, contract, crash, scenarios, a conformance smoke
	test/all

.PHONY: unit
unit: ## unit tests with the race detector
	$(GO) test -race ./...

.PHONY: lint
lint: ## gofmt and vet
	@test -z "$$(gofmt -l .)" || { gofmt -l .; exit 1; }
	$(GO) vet ./...

.PHONY: scenarios
scenarios: build ## scenarios with real containers (needs root)
	$(GO) test -count=1 -v ./test/scenarios

.PHONY: conformance
conformance: build ## the whole upstream conformance suite on two nodes (hours)
	test/conformance --procs 2

.PHONY: smoke
smoke: build ## about twenty conformance tests
	test/conformance --smoke

.PHONY: vm
vm: build ## run proa in a virtual machine that has cgroup v2 alone
	test/vm

.PHONY: crash
crash: ## kill the store 200 times under writes
	PROA_KILLS=200 $(GO) test -count=1 -v ./test/crash

.PHONY: bench
bench: build ## print the table of measured figures
	$(GO) run ./test/bench

.PHONY: fuzz
fuzz: ## a minute of every fuzz target
	test/fuzz
