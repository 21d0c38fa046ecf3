# The verbs, the same for people and CI. `make` alone lists them.
#
# A fresh machine needs Rust and a C linker. The linker is installed from the distribution when you are root, and
# named when you are not; nothing else is wanted, because no dependency brings a C library.

# rustup puts cargo where a shell finds it only after the next login.
export PATH := $(PATH):$(HOME)/.cargo/bin

DEMO := target/demo
CAPTURE ?=
FORMAT ?= mold-itch50
# The demo's day: what exchange-sim makes of it, faults included. A number that is too high only takes longer.
DAY ?= --seed 1 --messages 1M --loss 0.1% --reorder 0.1% --duplicate 0.05%
# 2 MiB pages for the demo's pool. As root they are reserved; without them the library falls back and says what it costs.
HUGEPAGES ?= 64
# Seconds that each fuzz target runs.
FUZZ_SECONDS ?= 60

.PHONY: help
help: ## this list
	@echo "wirepath: make VERB"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: tools ## the demo: a generated day through the whole pipeline, or CAPTURE=file FORMAT=iex-tops|iex-deep|cboe-pitch|...
	cargo build --release -p exchange-sim -p feed-handler -p hugepage-setup
	@if [ "$$(id -u)" = 0 ]; then target/release/hugepage-setup apply --pages $(HUGEPAGES) || true; fi
ifeq ($(CAPTURE),)
	@mkdir -p $(DEMO)
	target/release/exchange-sim generate --out $(DEMO)/day.pcap $(DAY)
	target/release/feed-handler replay $(DEMO)/day.pcap --format mold-itch50 --truth $(DEMO)/day.pcap.truth.json
else
	target/release/feed-handler replay "$(CAPTURE)" --format $(FORMAT)
endif

.PHONY: test
test: tools ## every test; ends with what could not run here, and why
	@scripts/test

.PHONY: lint
lint: tools ## format, clippy and documentation, warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

.PHONY: bench
bench: tools ## figures: criterion, then side by side with the incumbents
	cargo bench -p wirepath-benches

.PHONY: fuzz
fuzz: tools ## fuzz every parser and the pipeline, FUZZ_SECONDS each
	@cargo fuzz --version 2>/dev/null || { echo "wirepath: cargo-fuzz is missing; cargo install cargo-fuzz" >&2; exit 2; }
	cd tests && for corpus in corpus/*; do \
		mkdir -p fuzz/finds/$${corpus#*/} && \
		RUSTC_BOOTSTRAP=1 TARGET=$${corpus#*/} cargo fuzz run any -s none fuzz/finds/$${corpus#*/} $$corpus -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=2048 -timeout=10 || exit 1; \
	done

# Whether the machine has what every verb needs.
.PHONY: tools
tools:
	@command -v cargo >/dev/null || { echo "wirepath: cargo is missing; install Rust from https://rustup.rs" >&2; exit 2; }
	@command -v cc >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "wirepath: no C linker here, installing gcc and libc6-dev"; \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends gcc libc6-dev; \
	else \
		echo "wirepath: a C linker is missing; install the packages gcc and libc6-dev (Debian, Ubuntu) or gcc (Fedora)" >&2; exit 2; \
	fi
