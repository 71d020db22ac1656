# `make run` and `make test` need nothing but a Rust toolchain: they install the rest.

PORT ?= 6379
SECONDS ?= 20
MODULE := target/release/librl.so

.DEFAULT_GOAL := help
.PHONY: help deps build run test test-containers test-clients test-matrix soak memcheck lint doc bench instructions fuzz clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

deps: ## install what is missing: a server, clang and libclang
	@scripts/install-deps

build: deps ## build the module, target/release/librl.so
	cargo build --release --lib

run: build ## start a server with the module (PORT=6379, ARGS="further server options")
	@scripts/run-server $(PORT) $(MODULE) $(ARGS)

test: deps ## run the whole suite (REDIS_SERVER=path chooses the server)
	@scripts/install-deps tmux prometheus zsh fish
	cargo build --lib
	RL_MODULE=target/debug/librl.so cargo test --workspace

test-containers: deps ## images, the suite on six servers, failures, clients, valgrind (STEPS=failures for some; needs Docker)
	@scripts/test-containers $(STEPS)

test-clients: deps ## the examples of docs/clients, in six languages, on a cluster
	@scripts/test-clients

test-matrix: deps ## the whole suite on other servers (SERVERS="redis-6.2 valkey-9.1 /path/to/redis-server …" for some)
	@scripts/test-matrix $(SERVERS)

soak: deps ## every command on a million keys for ten minutes (SOAK_SECONDS=600 SOAK_KEYS=1000000; needs Docker)
	@scripts/soak

memcheck: deps ## run the module under valgrind (MEMCHECK=short for half a minute)
	@scripts/memcheck $(MEMCHECK)

lint: deps ## check format and lints
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

doc: deps ## build the API documentation
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items

bench: build ## compare with INCR, Lua and (RL_BENCH_PEER=libredis_cell.so) redis-cell; writes docs/benchmarks.md
	cargo bench -p rl-core
	cargo bench --bench server -- $(BENCH)
	RL_MODULE=$(MODULE) cargo bench -p rl-client --bench limiter --bench failures -- $(BENCH)

instructions: build ## count instructions per call, and compare with benches/instructions.txt
	@scripts/install-deps valgrind
	@scripts/instructions

fuzz: deps ## fuzz the parser and the state decoder (SECONDS=20 each)
	@scripts/fuzz $(SECONDS)

clean: ## remove everything built
	cargo clean
	rm -rf fuzz/target
