# Two commands do all the set-up: `make run` and `make test`.
SHELL := bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo

.PHONY: help run build test lint programs rust-test client-test doc bench soak deny install clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: build ## build everything and show abide at work
	@demo/show target/release/abide

build: ## the release binary
	$(CARGO) build --release --locked -p abide

test: lint rust-test client-test ## install what the tests need, and run all of them

lint: ## formatting, clippy, documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --quiet

# Real programs that the tests of terminal sessions talk to, and the packages they come in.
PROGRAMS := vim:vim less:less top:procps python3:python3 node:nodejs bash:bash

programs: ## the programs that the tests talk to (installs what is missing)
	@missing=()
	for pair in $(PROGRAMS); do
	  command -v "$${pair%%:*}" >/dev/null || missing+=("$${pair##*:}")
	done
	if [ $${#missing[@]} -gt 0 ]; then
	  echo "installing $${missing[*]}"
	  if [ "$$(id -u)" = 0 ]; then as_root=; else as_root=sudo; fi
	  $$as_root apt-get update -qq
	  $$as_root apt-get install -y -qq --no-install-recommends "$${missing[@]}" >/dev/null
	fi

rust-test: programs ## unit tests, transcripts, simulation, real children, doors
	$(CARGO) build --locked --workspace --all-targets
	if $(CARGO) nextest --version >/dev/null 2>&1; then
	  $(CARGO) nextest run --locked --workspace
	else
	  $(CARGO) test --locked --workspace --lib --bins --tests
	fi
	$(CARGO) test --locked --workspace --doc

client-test: ## the official MCP clients against abide (installs them first)
	abide/tests/clients/run

bench: build ## measure side by side with what one would use instead
	bench/run
	bench/terminals

soak: ## hours of simulation, kills and power cuts, by hand
	ABIDE_SEEDS=$${ABIDE_SEEDS:-1000000} $(CARGO) test --locked --release -p abide-core --test sim -- --nocapture
	$(CARGO) test --locked -p abide --test timers -- --ignored --nocapture

deny: ## licences, sources and bans (needs cargo-deny)
	$(CARGO) deny --locked check bans licenses sources

install: ## put abide into cargo's bin folder
	$(CARGO) install --locked --path abide

clean:
	$(CARGO) clean
