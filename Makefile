# `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One set of flags everywhere, so that building, testing and the development cluster share one build cache.
export CGO_ENABLED := 0
export GOFLAGS := -buildvcs=false -trimpath
# Compilers, linters, and servers in tests collect garbage less often than by default: a fifth less processor time for more memory.
export GOGC ?= 400

KUBE_VERSION := 1.37.2
# The API level of kcp that Atoll is compatible with; part of the response of /version.
KCP_VERSION := 0.33.0
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
GIT_COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS = -s -w \
	-X github.com/atoll-dev/atoll/internal/buildversion.linked=$(VERSION) \
	-X k8s.io/component-base/version.gitVersion=v$(KUBE_VERSION)+kcp-v$(KCP_VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37 \
	-X k8s.io/component-base/version.gitCommit=$(GIT_COMMIT) -X k8s.io/component-base/version.gitTreeState=clean \
	-X k8s.io/client-go/pkg/version.gitVersion=v$(KUBE_VERSION)+kcp-v$(KCP_VERSION) \
	-X k8s.io/client-go/pkg/version.gitMajor=1 -X k8s.io/client-go/pkg/version.gitMinor=37

BIN := $(CURDIR)/bin
IMAGE ?= docker.io/local/atoll:dev
TOFU_IMAGE ?= docker.io/local/atoll-tofu:dev
SERVER_BINARIES := operator kcp kcp-front-proxy cache-server virtual-workspaces sync-agent infrastructure-provider etcd
PLUGINS := kubectl-ws kubectl-create-workspace kubectl-kcp
BINARIES := $(SERVER_BINARIES) $(PLUGINS)
comma := ,
space := $() $()

##@ General

.PHONY: help
help: ## Show this help.
	@awk 'BEGIN {FS = ":.*##"; printf "Usage: make <target>\n"} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z0-9-]+:.*##/ {printf "  %-25s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

.PHONY: demo
demo: ## A Kubernetes cluster, the operator and a kcp installation you can use; prints the next commands.
	@hack/demo.sh up

.PHONY: demo-down
demo-down: ## Remove everything that `make demo` created.
	@hack/demo.sh down

.PHONY: demo-service
demo-service: ## Publish cert-manager's certificates of the demo's cluster into a workspace by the sync agent; starts the demo if needed.
	@hack/demo.sh service

.PHONY: demo-service-down
demo-service-down: ## Remove what `make demo-service` created.
	@hack/demo.sh service-down

.PHONY: demo-infrastructure
demo-infrastructure: ## Offer Redis, PostgreSQL and applications to tenants by the infrastructure provider; starts the demo if needed.
	@hack/demo.sh infrastructure

.PHONY: demo-infrastructure-down
demo-infrastructure-down: ## Remove what `make demo-infrastructure` created.
	@hack/demo.sh infrastructure-down

.PHONY: sharded
sharded: ## Three shards, a cache server and a front proxy as processes on this machine; returns when all are ready.
	$(call go_build,$(CURDIR),$(BIN),$(LDFLAGS),$(addprefix ./cmd/,kcp kcp-front-proxy cache-server kubectl-ws kubectl-create-workspace kubectl-kcp))
	$(call go_build,$(CURDIR),$(BIN)/tools,,./hack/sharded)
	@$(BIN)/tools/sharded up --binaries $(BIN)

.PHONY: sharded-down
sharded-down: ## Stop what `make sharded` started. Its data stays in .sharded/.
	$(call go_build,$(CURDIR),$(BIN)/tools,,./hack/sharded)
	@$(BIN)/tools/sharded down

##@ Build

# Builds packages of a module (1) into a directory (2) with linker flags (3): (4). One command builds all, so that it links some while it
# compiles others. It tells how far it is.
define go_build
@echo "building $(if $(filter .,$(4)),$(notdir $(1)),$(notdir $(4))): seconds, or minutes if Go's cache is empty"
@mkdir -p $(2)
@go -C hack/release run ./gobuild/cmd $(1) $(2) "$(3)" $(4)
endef

.PHONY: build
build: ## Build every binary into bin/.
	$(call go_build,$(CURDIR),$(BIN),$(LDFLAGS),$(addprefix ./cmd/,$(BINARIES)))
	@echo "binaries are in bin/"

# What makes images, and the development cluster, are modules of their own.
.PHONY: tools
tools:
	$(call go_build,$(CURDIR)/hack/release,$(BIN)/tools,,.)
	$(call go_build,$(CURDIR)/hack/devcluster,$(BIN)/tools,,.)

.PHONY: image-tar
image-tar: build tools ## Build the image of all server binaries as a tar, without a container engine.
	@$(BIN)/tools/release licenses --root $(CURDIR) $(addprefix $(BIN)/,$(SERVER_BINARIES)) >$(BIN)/licenses.txt
	@$(BIN)/tools/devcluster build-image --name $(IMAGE) --tar $(BIN)/image.tar --licenses $(BIN)/licenses.txt $(addprefix $(BIN)/,$(SERVER_BINARIES))

.PHONY: tofu-image-tar
tofu-image-tar: tools ## Build the image of the infrastructure provider's OpenTofu runs as a tar; the first build takes minutes.
	$(call go_build,$(CURDIR),$(BIN),$(LDFLAGS),./cmd/tofu-runner)
	$(call go_build,$(CURDIR)/hack/devcluster/opentofu,$(BIN),-s -w -X github.com/opentofu/opentofu/version.dev=no,github.com/opentofu/opentofu/cmd/tofu)
	@$(BIN)/tools/devcluster build-image --name $(TOFU_IMAGE) --tar $(BIN)/tofu-image.tar $(BIN)/tofu-runner $(BIN)/tofu

.PHONY: image-files
image-files: build ## The files of the image in bin/image-files, for the Dockerfile.
	@rm -rf $(BIN)/image-files && mkdir -p $(BIN)/image-files
	@go -C hack/release run . files --root $(CURDIR) $(addprefix $(BIN)/,$(SERVER_BINARIES)) | tar -xpC $(BIN)/image-files

IMAGE_ARGUMENTS = --build-arg VERSION=$(VERSION) --build-arg GIT_COMMIT=$(GIT_COMMIT) --build-arg CREATED=$(shell TZ=UTC git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null || echo 1970-01-01T00:00:00Z)

.PHONY: images
images: ## Build the image with docker, podman or buildah, whichever is there.
	@if command -v docker >/dev/null && docker info >/dev/null 2>&1; then docker build $(IMAGE_ARGUMENTS) -t $(IMAGE) .; \
	elif command -v podman >/dev/null; then podman build $(IMAGE_ARGUMENTS) -t $(IMAGE) .; \
	elif command -v buildah >/dev/null; then buildah build $(IMAGE_ARGUMENTS) -t $(IMAGE) .; \
	else echo "no docker engine, podman or buildah here; building bin/image.tar instead"; $(MAKE) --no-print-directory image-tar; fi

RELEASE_VERSION ?= $(shell git describe --tags --match 'v*' --abbrev=12 2>/dev/null || echo v0.0.0-dev.g$$(git rev-parse --short=12 HEAD))
RELEASE_PLATFORMS ?= amd64 arm64
# Platforms that have plug-ins only.
RELEASE_PLUGIN_PLATFORMS ?= darwin_amd64 darwin_arm64 windows_amd64
RELEASE_REPOSITORY ?= docker.io/local/atoll
# Where users download the files of dist/ from.
RELEASE_URL ?= https://github.com/atoll-dev/atoll/releases/download/$(RELEASE_VERSION)

.PHONY: release
release: VERSION = $(RELEASE_VERSION)
release: ## Images for all platforms, charts, definitions, plug-ins and their manifests for krew, bills of materials and checksums in dist/.
	@# Untracked files would be in binaries and charts, too; of ignored ones, those in charts.
	@files=$$(git status --porcelain; git status --porcelain --ignored -- charts | grep '^!!' || true); \
		[[ -z "$$files" ]] || { echo "commit first, or remove: a release is made of a commit, and these files are not of it"; echo "$$files"; exit 1; }
	@rm -rf $(BIN)/release dist
	@for arch in $(RELEASE_PLATFORMS); do mkdir -p $(BIN)/release/linux_$$arch; for name in $(BINARIES); do echo "building $$name for linux/$$arch"; \
		GOOS=linux GOARCH=$$arch GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= go build -ldflags '$(LDFLAGS)' -o $(BIN)/release/linux_$$arch/$$name ./cmd/$$name; done; done
	@for platform in $(RELEASE_PLUGIN_PLATFORMS); do echo "building the plug-ins for $$platform"; \
		GOOS=$${platform%_*} GOARCH=$${platform#*_} GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= go build -ldflags '$(LDFLAGS)' -o $(BIN)/release/$$platform/ $(addprefix ./cmd/,$(PLUGINS)); done
	@go -C hack/release run . --version $(RELEASE_VERSION) --commit $(GIT_COMMIT) --created $$(git log -1 --format=%ct) --repository $(RELEASE_REPOSITORY) --url $(RELEASE_URL) \
		--binaries $(BIN)/release --root $(CURDIR) --out $(CURDIR)/dist --servers $(subst $(space),$(comma),$(SERVER_BINARIES)) --plugins $(subst $(space),$(comma),$(PLUGINS))

DOCS_REPOSITORY ?= https://github.com/atoll-dev/atoll/blob/main/

.PHONY: docs
docs: ## The documentation as a site in bin/site, which needs no server: open bin/site/index.html. Fails for broken links.
	$(call go_build,$(CURDIR)/hack/site,$(BIN)/tools,,.)
	@cd hack/site && $(BIN)/tools/site build --out $(BIN)/site --repository $(DOCS_REPOSITORY) --version $(VERSION)

.PHONY: docs-serve
docs-serve: ## Serve the documentation on this machine, and follow changes of docs/.
	$(call go_build,$(CURDIR)/hack/site,$(BIN)/tools,,.)
	@cd hack/site && $(BIN)/tools/site serve --repository $(DOCS_REPOSITORY) --version $(VERSION)

##@ Develop

.PHONY: generate
generate: ## Regenerate deepcopy, OpenAPI, CRDs, RBAC, charts, dashboards and the reference.
	@hack/generate.sh
	@hack/generate-openapi.sh
	@hack/generate-derived.sh

.PHONY: portal
portal: ## Build the portal of the infrastructure provider from infrastructure/portal/web; needs Node.js 20 and npm.
	cd infrastructure/portal/web && npm ci --no-audit --no-fund && npm run build
	cd infrastructure/portal/web/node_modules/axe-core && cp axe.min.js ../../../../../test/chromium/axe/ && for name in LICENSE LICENSE-3RD-PARTY.txt; do cp $$name ../../../../../test/chromium/axe/$${name%.txt}; done

.PHONY: portal-pictures
portal-pictures: ## Make the pictures of the portal in docs/pictures anew, in Chromium.
	@mkdir -p docs/pictures
	PORTAL_PICTURES=$(CURDIR)/docs/pictures go -C test/chromium test -count=1 -run TestPictures ./portal

.PHONY: headlamp
headlamp: ## Check, test and package the plugin for Headlamp into bin/headlamp; needs Node.js 20 and npm.
	@hack/headlamp.sh package

.PHONY: test-headlamp
test-headlamp: ## Package the plugin for Headlamp and test it against a shard; needs Node.js 20 and npm. Not part of `make test`.
	@hack/headlamp.sh test

.PHONY: verify
verify: ## Regenerate, format, lint, check import rules and vulnerabilities; fails if that changes a file.
	@hack/verify.sh

.PHONY: test
test: test-plan ## All tests: unit, in-process servers, Kubernetes' own, and end to end on a real cluster.
	@hack/test.sh

.PHONY: test-plan
test-plan:
	@hack/test-plan.sh

# The packages of the main module that cost most: they begin first, so that none of them runs alone at the end.
LONGEST = $(shell awk '/^[a-z]/ && $$2 >= 100 && $$1 !~ "^test/(clients|conformance|chromium)" {print $$2, "./" $$1}' hack/timing/budgets.txt | sort -rn | cut -d ' ' -f 2)

.PHONY: test-unit
test-unit: test-main test-modules ## Unit tests and tests against in-process servers. Needs nothing but Go.

.PHONY: test-main
test-main:
	@# `make verify` vets: here vet would analyze all dependencies once more.
	@# Three packages at once on two processors: many wait for servers most of the time.
	$(TIMED) go test -vet=off -p $$(($$(getconf _NPROCESSORS_ONLN) * 3 / 2)) -timeout 30m $(LONGEST) ./...

# Those of other modules take few processors for minutes, so that `make test` runs them beside the tests on pods.
.PHONY: test-modules
test-modules:
	$(TIMED) go -C api test -vet=off ./...
	$(TIMED) go -C hack/devcluster test -vet=off ./...
	$(TIMED) go -C hack/release test -vet=off ./...
	$(TIMED) go -C hack/site test -vet=off ./...
	$(TIMED) go -C test/chromium test -vet=off -timeout 30m ./...

RACE ?= ./shardserver/... ./cacheserver/... ./proxy/... ./internal/sharedindex/... ./internal/embeddedetcd/... ./internal/issuers/... ./controllers/... ./test/isolation/...

.PHONY: race
race: ## The tests of what runs concurrently, under the race detector. Needs a C compiler, and 3 GB to build everything once more.
	CGO_ENABLED=1 go test -race -vet=off -p 2 -timeout 60m $(RACE)

.PHONY: test-e2e
test-e2e: ## End to end: development cluster, operator, pods, front proxy; then both charts by Helm.
	@hack/e2e.sh

.PHONY: test-gitops
test-gitops: ## Argo CD, Flux and the charts on the development cluster. Not part of `make test`: the first build of both takes as long as all of that.
	@hack/gitops.sh
	@E2E_TESTS=charts hack/e2e.sh

.PHONY: test-prometheus-operator
test-prometheus-operator: ## What the operator of Prometheus makes of the monitors and rules. Not part of `make test`: `make test-unit` checks its result.
	go -C test/monitoring/prometheusoperator test ./...

.PHONY: conformance
conformance: ## Kubernetes' own end-to-end specs, Helm, kubectl and controller-runtime in workspaces, through the front proxy.
	@hack/conformance.sh

.PHONY: next
next: ## Build and test against the newest release or pre-release of the next Kubernetes, in a scratch copy; hack/next.sh --help.
	@hack/next.sh

FUZZ_TIME ?= 5s

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZ_TIME.
	@hack/fuzz.sh $(FUZZ_TIME)

.PHONY: faults
faults: ## Every fault of test/faults in its full form, with the figures of docs/operator-faults.md in the log, and 100,000 requests against the usage of their workspace: half an hour on an idle machine, as root for the full disk. `make test-unit` runs the short one.
	ATOLL_FAULTS=full go test -count=1 -v -timeout 120m ./test/faults
	ATOLL_FAULTS=full go test -count=1 -v -timeout 30m -run '^TestReplicas$$' ./test/process

.PHONY: bench
bench: ## Figures of one run as a table, in bench.json and in docs/performance-figures.md: about three quarters of an hour on an idle machine. BENCH_SCALE=0.1 takes a quarter of an hour and leaves docs/performance-figures.md as it is.
	go test -run '^$$' -bench . -benchtime 1x -timeout 120m ./test/bench/...
	@if [[ -z "$${BENCH_SCALE:-}" ]]; then go run ./hack/benchtable bench.json docs/performance-figures.md $(GIT_COMMIT); fi
