# `make run` and `make test` need only a Rust toolchain. They install whatever else is missing.

PORT ?= 6379
SECONDS ?= 20
MODULE := target/release/librl.so

.DEFAULT_GOAL := help
.PHONY: help deps build run test test-containers test-clients test-matrix nemesis soak memcheck lint deny package doc bench \
	instructions fuzz fixtures mutants dist clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

deps: ## install missing tools: a server, clang, libclang
	@scripts/install-deps

build: deps ## build the module: target/release/librl.so
	cargo build --release --lib

run: build ## start a server with the module (PORT=6379; ARGS="more server options")
	@scripts/run-server $(PORT) $(MODULE) $(ARGS)

test: deps ## run all tests (REDIS_SERVER=/path/to/redis-server selects the server)
	@scripts/install-deps tmux prometheus zsh fish
# One selection of targets, so that nothing is compiled twice with different features.
	cargo build --workspace --lib --bins --tests --examples
# Tests mostly wait for servers, so run more of them at once than there are cores.
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$$((2 * $$(nproc)))} RL_MODULE=target/debug/librl.so cargo test --workspace

test-containers: deps ## build the images and test them: suite, failures, clients, valgrind (STEPS="failures" for one; needs Docker)
	@scripts/test-containers $(STEPS)

test-clients: deps ## run the examples in docs/clients, in six languages, against a cluster
	@scripts/test-clients

test-matrix: deps ## run the module's tests on every supported server (SERVERS="redis-6.2 /path/to/valkey-server" for some)
	@scripts/test-matrix $(SERVERS)

nemesis: deps ## random traffic and faults for an hour (SERVERS="redis-8.0" MINUTES=60; SEED=n replays a seed)
	@SEED="$(SEED)" MINUTES="$(MINUTES)" scripts/nemesis $(SERVERS)

soak: deps ## every command on a million keys for ten minutes (SOAK_KEYS=1000000 SOAK_SECONDS=600; needs Docker)
	@scripts/soak

memcheck: deps ## run the module under valgrind (MEMCHECK=short takes half a minute)
	@scripts/memcheck $(MEMCHECK)

lint: deps ## check formatting and run clippy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

deny: ## check dependencies: licenses, duplicate versions, sources (DENY=advisories for known vulnerabilities)
	@scripts/install-cargo-tool cargo-deny 0.20.2
	cargo deny --all-features --workspace check $(or $(DENY),bans licenses sources)

package: ## package every crate as for crates.io, and build the packages
# A new folder each time: Cargo unpacks our crates into its cache by the folder's path, and would use the old ones again.
	@mkdir -p target && dir=$$(mktemp -d target/package.XXXXXX) && trap 'rm -rf "$$dir"' EXIT && \
	  cargo package --workspace --allow-dirty --target-dir "$$dir"

doc: deps ## build the API documentation; warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

# A name from scripts/servers, or a path. Without it, the targets are measured on every server that they name.
ifdef SERVER
ON_SERVER = REDIS_SERVER=$(if $(findstring /,$(SERVER)),$(SERVER),$$(scripts/servers $(SERVER))) && export REDIS_SERVER &&
endif

bench: build ## measure the targets and the alternatives (SERVER=valkey-9.1 RL_BENCH_PEER=/path/to/libredis_cell.so); writes docs/benchmarks.md
	cargo bench -p redis-rl-core --bench evaluate -- --warm-up-time 1 --measurement-time 2
	$(ON_SERVER) cargo bench --bench server -- $(BENCH)
	$(ON_SERVER) RL_MODULE=$(MODULE) cargo bench -p rl-client --bench limiter --bench failures -- $(BENCH)

instructions: build ## count instructions per call and compare with benches/instructions.txt
	@scripts/install-deps valgrind
	@scripts/instructions

fixtures: deps ## write the golden files of a new encoding version (VERSION=v2), see tests/fixtures
	cargo build --lib
	REDIS_SERVER=$$(scripts/servers redis-6.2) RL_MODULE=target/debug/librl.so RL_FIXTURES=$(VERSION) \
	  cargo test -p rl --test suite -- --ignored write_fixtures

fuzz: deps ## fuzz the parser and the state decoder (SECONDS=20 for each target)
	@scripts/fuzz $(SECONDS)

mutants: ## change the core in one place at a time and check that a test fails (hours; FILES="crates/core/src/…" or SHARD=0/8 for some)
	@SHARD="$(SHARD)" scripts/mutants $(FILES)

dist: deps ## build the release artifacts for old systems (glibc 2.17): target/dist
	@scripts/dist

clean: ## remove all build output
	cargo clean
	rm -rf fuzz/target
