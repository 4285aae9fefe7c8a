# Two commands do all the set-up: `make run` and `make test`.
SHELL := bash
.ONESHELL:
.SHELLFLAGS := -euo pipefail -c
CARGO ?= cargo

.PHONY: help run build optimized dist test lint programs rust-test client-test agent-test web web-lint web-test browser pictures page-bench guide reference bench soak deny package-test kernel-test install clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

# Without optimisation, because that is built in a third of the time.
run: web ## build everything and show abide at work
	$(CARGO) build --locked -p abide
	@demo/show target/debug/abide

build: web ## the release binary, with the page in it
	$(CARGO) build --release --locked -p abide

optimized: web ## the binary that the benchmarks measure: faster and smaller, longer to build
	$(CARGO) build --profile dist --locked -p abide

dist: web ## everything that is published, in target/packages: static binaries, npm, PyPI, .deb, .mcpb, crates
	packaging/dist target/packages

test: lint deny rust-test client-test web-lint web-test package-test ## install what the tests need, and run all of them

lint: ## formatting, clippy, documentation, figures in the documents
	bench/figures --check
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --quiet

# Real programs that the tests talk to, and the packages they come in.
PROGRAMS := bwrap:bubblewrap strace:strace zsh:zsh fish:fish vim:vim less:less top:procps htop:htop python3:python3 node:nodejs bash:bash ssh:openssh-client /usr/sbin/sshd:openssh-server psql:postgresql-client pg_createcluster:postgresql pgbouncer:pgbouncer

programs: ## the programs that the tests talk to (installs what is missing)
	@missing=()
	for pair in $(PROGRAMS); do
	  command -v "$${pair%%:*}" >/dev/null || missing+=("$${pair##*:}")
	done
	if [ $${#missing[@]} -gt 0 ]; then
	  echo "installing $${missing[*]}"
	  if [ "$$(id -u)" = 0 ]; then as_root=; else as_root=sudo; fi
	  $$as_root apt-get update -qq
	  # The tests start an ssh server of their own. The package would start one for this machine.
	  ssh=()
	  if [[ " $${missing[*]} " == *" openssh-server "* && -d /run/systemd/system ]]; then ssh=(ssh.service ssh.socket); fi
	  if [ $${#ssh[@]} -gt 0 ]; then $$as_root systemctl mask --quiet "$${ssh[@]}"; fi
	  $$as_root apt-get install -y -qq --no-install-recommends "$${missing[@]}" >/dev/null
	  if [ $${#ssh[@]} -gt 0 ]; then
	    $$as_root systemctl unmask --quiet "$${ssh[@]}"
	    $$as_root systemctl disable --quiet "$${ssh[@]}"
	  fi
	fi

rust-test: programs ## unit tests, transcripts, simulation, real processes, interfaces
	if $(CARGO) nextest --version >/dev/null 2>&1; then
	  # Most tests wait for processes, so several share a core: .config/nextest.toml says how many of which kind.
	  threads=$$((4 * $$(nproc)))
	  $(CARGO) nextest run --locked --workspace --test-threads $$threads
	  # Of the workspace, because cargo builds a package alone with other features, all of it again.
	  ABIDE_TEST_STORE=postgres $(CARGO) nextest run --locked --workspace --test timers --test-threads $$threads
	else
	  $(CARGO) test --locked --workspace --lib --bins --tests
	  ABIDE_TEST_STORE=postgres $(CARGO) test --locked --workspace --test timers
	fi
	$(CARGO) test --locked --workspace --doc

client-test: ## the official MCP clients against abide (installs them first)
	abide/tests/clients/run

# Installs a package.
define apt
echo "installing $(1)"
if [ "$$(id -u)" = 0 ]; then as_root=; else as_root=sudo; fi
$$as_root apt-get update -qq
$$as_root apt-get install -y -qq --no-install-recommends $(1) >/dev/null
endef

web/node_modules: web/package.json web/package-lock.json
	cd web && npm ci --silent && touch node_modules

# Cargo builds the program again after each build of the page, so the page is built only after a change.
web/dist/index.html: $(shell find web/src web/public) $(wildcard web/*.html web/*.json web/vite.config.ts) | web/node_modules
	cd web && npm run --silent build -- --logLevel warn

web: ## the page, where there is npm; without it the binary says how to get it
	@if command -v npm >/dev/null; then
	  $(MAKE) --no-print-directory --silent web/dist/index.html
	else
	  echo "npm is not installed: abide is built without its page"
	fi

web-lint: web/node_modules ## the page: lints, types, unit tests
	@$(MAKE) --no-print-directory --jobs --output-sync web-check-lint web-check-types web-check-unit

web-check-%:
	cd web && npm run --silent $*

# The page's tests use the system's Chromium; CHROMIUM names another.
browser:
	@if [ -z "$${CHROMIUM:-}" ] && ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null; then
	  $(call apt,chromium)
	fi

web-test: browser web ## the page in a real browser, against the real daemon
	$(CARGO) build --locked --profile test -p abide
	cd web && npm run --silent test

pictures: browser web ## draw the pictures again, from the program and its page
	if ! command -v pngquant >/dev/null; then
	  $(call apt,pngquant)
	fi
	$(CARGO) build --locked -p abide
	demo/show target/debug/abide 2>&1 | demo/picture > demo/abide.svg
	cd web && npm run --silent pictures

page-bench: browser optimized ## how smooth the page is with ten thousand timers and two thousand sessions
	cd web && ABIDE_BIN=../target/dist/abide npm run --silent bench

agent-test: ## Claude Code and Codex, woken by abide (downloads both; not part of `make test`)
	abide/tests/agents/run

bench: optimized ## measure side by side with what one would use instead
	bench/run
	bench/terminals
	bench/ablation
	bench/everyday
	bench/timers

soak: ## hours of simulation, kills and power cuts, by hand
	ABIDE_SEEDS=$${ABIDE_SEEDS:-1000000} $(CARGO) test --locked --release -p abide-core --test sim -- --nocapture
	ABIDE_SEEDS=$${ABIDE_SEEDS:-1000000} $(CARGO) test --locked --release -p abide-core --test fleet random_faults -- --nocapture
	ABIDE_LOSSES=$${ABIDE_LOSSES:-100000} $(CARGO) test --locked --release -p abide-core --test fleet losses -- --nocapture
	ABIDE_SEEDS=$${ABIDE_SEEDS:-1000000} $(CARGO) test --locked --release -p abide-engine --lib sim:: -- --nocapture
	PROPTEST_CASES=$${PROPTEST_CASES:-100000} $(CARGO) test --locked --release --workspace --lib -- random tokenizer terminal_filter
	$(CARGO) test --locked -p abide --test timers -- --ignored --nocapture
	ABIDE_LOSSES=$${ABIDE_MACHINE_LOSSES:-200} $(CARGO) test --locked -p abide --test postgres losses::f4 -- --nocapture

deny: ## licences, sources and banned crates (installs cargo-deny into target/ if it is missing)
	@export PATH="target/tools/bin:$$PATH"
	command -v cargo-deny >/dev/null || $(CARGO) install --quiet --debug --locked --root target/tools cargo-deny
	cargo-deny --locked check --hide-inclusion-graph bans licenses sources

guide: ## the guide as web pages in guide/book (installs mdbook if it is missing)
	export PATH="$${CARGO_HOME:-$$HOME/.cargo}/bin:$$PATH"
	command -v mdbook >/dev/null || $(CARGO) install --locked mdbook@^0.5 --no-default-features --features search
	mdbook build guide

reference: ## write the guide's reference and the page's types again, from the program
	ABIDE_WRITE_TYPES=1 $(CARGO) test --locked --quiet -p abide-api --test typescript
	$(CARGO) build --locked -p abide
	target/debug/abide tools --format markdown > guide/src/reference/tools.md
	target/debug/abide man --markdown > guide/src/reference/cli.md

# Static binaries without optimisation are quick to build, and packed in the same way as those that are published.
package-test: web ## every kind of package, installed into an empty folder and tried
	@command -v qemu-aarch64-static >/dev/null || { $(call apt,qemu-user-static); }
	rm -rf target/package-test
	export DEB_COMPRESSION=gzip COMPRESSION_LEVEL=1
	binaries=()
	for arch in x86_64 aarch64; do
	  code=0
	  # A fixed date: with that of the last commit, cargo would build all C code, and what needs it, after every commit.
	  binary=$$(SOURCE_DATE_EPOCH=1000000000 packaging/static-binary $$arch dev) || code=$$?
	  case $$code in 0) binaries+=("$$arch=$$binary") ;; 3) ;; *) exit $$code ;; esac
	done
	if [ $${#binaries[@]} -lt 2 ]; then
	  echo "NOT TESTED: static binaries. Rust's standard library for musl could not be installed; the packages get the debug binary."
	  $(CARGO) build --locked --quiet -p abide
	  binaries=("$$(uname -m)=target/debug/abide")
	fi
	packaging/package.py target/package-test "$${binaries[@]}" >/dev/null
	for pair in "$${binaries[@]}"; do
	  if [ "$${pair%%=*}" = "$$(uname -m)" ]; then packaging/deb "$${pair#*=}" target/package-test >/dev/null; fi
	done
	packaging/crates target/package-test >/dev/null
	packaging/test.py target/package-test

kernel-test: ## the sandbox on Debian's older kernel, under qemu
	@command -v qemu-system-x86_64 >/dev/null || { $(call apt,qemu-system-x86 busybox-static cpio e2fsprogs); }
	$(CARGO) build --locked --quiet -p abide
	packaging/old-kernel target/debug/abide

install: web ## put abide, with the page in it, into cargo's bin folder
	$(CARGO) install --locked --path abide

clean:
	$(CARGO) clean
