# The verbs, the same for people and CI. `make` alone lists them.
#
# A fresh machine needs Rust and a C linker; no dependency brings a C library. What a verb needs
# beyond them stands in its `want` lines, and is installed from the distribution when you are root,
# and named when you are not: for `make run` the linker and iproute2; for `make test` also the
# unmodified programs and headers that tests run against, rdma-core and DPDK among them; for
# `make bench` valgrind, strace, rdma-core, DPDK and servers with their benchmarks; for `make fuzz` a
# C++ compiler for libFuzzer.

# rustup puts cargo where a shell finds it only after the next login, and sudo does not look there
# at all.
export PATH := $(PATH):$(HOME)/.cargo/bin
ifneq ($(SUDO_USER),)
SUDO_HOME := $(shell getent passwd $(SUDO_USER) | cut -d: -f6)
ifeq ($(wildcard $(HOME)/.cargo/bin/cargo),)
ifneq ($(wildcard $(SUDO_HOME)/.cargo/bin/cargo),)
export PATH := $(PATH):$(SUDO_HOME)/.cargo/bin
export RUSTUP_HOME ?= $(SUDO_HOME)/.rustup
endif
endif
endif

# Where cargo puts what it builds, and the programs of the profile `demo`; the generated day lies
# beside them.
TARGET := $(or $(CARGO_TARGET_DIR),target)
DEMO := $(TARGET)/demo
CAPTURE ?=
FORMAT ?=
# The demo's day: what exchange-sim makes of it, faults included. A number that is too high only
# takes longer.
DAY ?= --seed 1 --messages 2M --loss 0.1% --reorder 0.1% --duplicate 0.05%
# The live day: seconds of open market, and some ten of quiet around them.
LIVE ?= --seed 1 --rate 100k --seconds 2 --pack-wait 50 --loss 1% --reorder 0.5% --duplicate 0.5%
# What the live demo's handler drives: af_xdp, or mlx5, a ConnectX made of software.
DEVICE ?= af_xdp
# How long the trading demo trades.
TRADE_SECONDS ?= 5
# How long the soak trades. At 5,000 orders a second the journal is one gigabyte for each 400 seconds,
# and the exchange writes half of that to a file without a name in TMPDIR, because it can send each
# answer again.
TRADE_SOAK_SECONDS ?= 3600
# 2 MiB pages for the demo's pool. As root they are reserved; without them the library falls back
# and says what it costs.
HUGEPAGES ?= 16
# Frames of the soak: 100 million take some minutes on a quiet machine, and half an hour on a busy
# one.
SOAK_FRAMES ?= 100000000
# Cases of each property, drawn anew; make test draws the same 256 each time.
SOAK_CASES ?= 10000
# Random scripts of calls on the kernel's sockets and on ours; make test plays some hundred of each.
SOAK_SCRIPTS ?= 10000
# Those over mlx5 rings from 8 to 8192, for each way to send and to receive.
MLX5_SOAK_FRAMES ?= 10000000
# Seeds of the simulator; SEED=n replays one.
SEEDS ?= 10000
# Seconds that each fuzz target runs.
FUZZ_SECONDS ?= 60
# Where `make install` puts programs and libraries.
PREFIX ?= /usr/local
# A part of the figures; empty: all but those that take long.
PART ?=

.PHONY: help
help: ## this list
	@echo "wirepath: make VERB"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: run
run: tools ## the demo: live against the Linux kernel as root, else a replay; DEVICE=mlx5; or a capture: make run CAPTURE=file FORMAT=iex-tops
	$(if $(CAPTURE),$(if $(FORMAT),,$(error what is in $(CAPTURE)? add FORMAT=iex-tops or another that feed-handler names)))
	$(if $(CAPTURE),,$(call want,ip,iproute2,for the network namespaces of the demo,:))
	$(if $(filter mlx5,$(DEVICE)),$(call want,ibv_devices,rdma-core ibverbs-utils ibverbs-providers,for the software ConnectX,:))
	cargo build --profile demo -p exchange-sim -p feed-handler -p hugepage-setup $(if $(filter mlx5,$(DEVICE)),-p softhca -p softhca-preload)
	@if [ "$$(id -u)" = 0 ]; then $(DEMO)/hugepage-setup apply --pages $(HUGEPAGES) || [ $$? -lt 126 ]; \
	elif ! $(DEMO)/hugepage-setup check --pages $(HUGEPAGES) >/dev/null 2>&1; then \
		echo "wirepath: no hugepages for the demo, and only root reserves them: sudo $(DEMO)/hugepage-setup apply --pages $(HUGEPAGES)" >&2; fi
ifeq ($(CAPTURE),)
	@DEVICE=$(DEVICE) scripts/demo-live $(DEMO) $(LIVE); status=$$?; [ $$status = 77 ] || exit $$status; \
	$(DEMO)/exchange-sim generate --out $(DEMO)/day.pcap $(DAY) && \
	$(DEMO)/feed-handler replay $(DEMO)/day.pcap --format mold-itch50 --truth $(DEMO)/day.pcap.truth.json
else
	$(DEMO)/feed-handler replay "$(CAPTURE)" --format $(FORMAT)
endif

.PHONY: order
order: tools ## a tick over UDP fires an order over TCP within one poll_once, over a wire of plain memory
	cargo run --profile demo -p wirepath --example order

.PHONY: trade
trade: tools ## an exchange and an order gateway trade, as root over a veth, else over loopback; ends with the latency of each stage, and both ends' books balance; TRADE_SECONDS=5, as root TRANSPORT=wirepath
	@[ "$$(id -u)" = 0 ] || echo "wirepath: without root both programs trade over loopback, on kernel sockets" >&2
	$(call want,ip,iproute2,for network namespaces,[ "$$(id -u)" != 0 ])
	cargo build --profile demo -p exchange-sim -p order-gateway
	@scripts/demo-trade $(DEMO) $(TRADE_SECONDS) $(TRANSPORT)

.PHONY: fanout
fanout: tools ## a day of market data to a consumer by nats-server, which is killed in its middle: the consumer ends with each record once; needs no root
	$(call want,nats-server,nats-server,for the demo,exit 2)
	cargo build --profile demo -p exchange-sim -p market-gateway -p market-gateway-nats --bins
	cargo build --profile demo -p market-gateway-nats --example consumer
	@scripts/demo-fanout $(DEMO)

.PHONY: sockets
sockets: root tools ## as root: redis-server on wirepath in a namespace, redis-benchmark on the kernel in another, then both on the kernel; ends with both figures, their ratio and the server's sockets
	$(call want,ip,iproute2,for network namespaces,exit 2)
	$(call want,redis-server,redis-server redis-tools,for the server and its benchmark,exit 2)
	cargo build --profile demo -p wirepath-cli -p wirepath-preload
	@scripts/demo-sockets $(DEMO)

.PHONY: test
test: tools ## every test; ends with what could not run here, and why
	$(call want,ip,iproute2,for tests in network namespaces,:)
	$(call want,ping,iputils-ping,for tests against unmodified programs,:)
	$(call want,traceroute,traceroute,for tests against unmodified programs,:)
	$(call want,socat,socat,for tests against unmodified programs,:)
	$(call want,iperf,iperf,for tests against unmodified programs,:)
	$(call want,iperf3,iperf3,for tests against unmodified programs,:)
	$(call want,curl,curl,for tests against unmodified programs,:)
	$(call want,tcpdump,tcpdump,for tests against unmodified programs,:)
	$(call want,nft,nftables,for wires that lose frames,:)
	$(call want,ethtool,ethtool,for wires that lose frames,:)
	$(call want,sockperf,sockperf,for tests against unmodified programs,:)
	$(call want,redis-server,redis-server redis-tools,for tests of unmodified programs on wirepath,:)
	$(call want,memcached,memcached,for tests of unmodified programs on wirepath,:)
	$(call want,nginx,nginx-light,for tests of unmodified programs on wirepath,:)
	$(call want,haproxy,haproxy,for tests of unmodified programs on wirepath,:)
	$(call want,ab,apache2-utils,for tests of unmodified programs on wirepath,:)
	$(call want,wrk,wrk,for tests of unmodified programs on wirepath,:)
	$(call want,strace,strace,for tests of unmodified programs on wirepath,:)
	$(call want,/usr/lib/$(shell cc -print-multiarch 2>/dev/null)/libjemalloc.so.2,libjemalloc2,for tests of unmodified programs on wirepath,:)
	$(call want,ibv_devinfo,rdma-core ibverbs-utils ibverbs-providers,for the software ConnectX,:)
	$(call want,/usr/include/infiniband/verbs.h,libibverbs-dev,for tests against programs in C,:)
	$(call want,pkg-config,pkgconf,for tests against programs in C,:)
	$(call want,c++,g++,for tests against programs in C++,:)
	$(call want,raw_ethernet_bw,perftest,for tests against unmodified programs,:)
	$(call want,/usr/lib/python3/dist-packages/pyverbs,python3-pyverbs,for tests against unmodified programs,:)
	$(call want,dpdk-testpmd,dpdk-dev,for tests against unmodified programs,:)
	$(call want,/usr/include/quickfix/Session.h,libquickfix-dev,for tests of FIX against QuickFIX,:)
	$(call want,nats-server,nats-server,for tests of the gateway against NATS,:)
	$(call want,kcat,kcat,for tests of the gateway against Kafka,:)
	$(call want,/usr/lib/python3/dist-packages/confluent_kafka,python3-confluent-kafka,for tests of the gateway against Kafka,:)
	$(call want,tshark,tshark,for a second opinion on packets of RoCE,:)
	@scripts/test

.PHONY: check
check: tools ## the tests of the libraries and of their documentation: no root, nothing installed, some minutes
	cargo test -p wirepath -p wirepath-market -p wirepath-order-entry -p wirepath-matching-engine -p wirepath-market-ring -p hugepage-setup --lib
	cargo test -p wirepath -p wirepath-market -p wirepath-order-entry -p wirepath-matching-engine -p wirepath-market-ring --doc

.PHONY: lint
lint: tools ## format, clippy, documentation and packages; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	RUSTDOCFLAGS="-D warnings" cargo doc -p wirepath --no-deps --target-dir $(TARGET)/alone
	@scripts/check-dependencies
	@scripts/check-public-items
	@scripts/check-features
	@scripts/check-packages
	@scripts/check-aarch64

.PHONY: install
install: tools ## below PREFIX=/usr/local: wirepath, feed-handler, the library under unmodified programs, libwirepath for C and C++
	@DESTDIR=$(DESTDIR) scripts/install-tools $(PREFIX)
	@DESTDIR=$(DESTDIR) scripts/install-c $(PREFIX)

.PHONY: package
package: tools ## what would be published, each package built by itself from its archive in target/package
	@VERIFY=1 scripts/check-packages

.PHONY: bench
bench: tools ## the promised figures side by side with the incumbents, appended to docs/figures; PART=tcp and others; QUICK=1 is shorter and not recorded
	$(call want,valgrind,valgrind,to count instructions,true)
	$(call want,strace,strace,to count system calls,true)
	$(call want,ip,iproute2,for the live figures in network namespaces,true)
	$(call want,ibv_devinfo,rdma-core ibverbs-utils ibverbs-providers,to measure against libmlx5,true)
	$(call want,pkg-config,pkgconf,to measure against DPDK,true)
	$(call want,dpdk-testpmd,dpdk-dev librte-net-af-xdp23,to measure against DPDK,true)
	$(call want,sockperf,sockperf,to measure programs on wirepath,true)
	$(call want,redis-server,redis-server redis-tools,to measure programs on wirepath,true)
	$(call want,memcached,memcached,to measure programs on wirepath,true)
	$(call want,nginx,nginx-light,to measure programs on wirepath,true)
	$(call want,haproxy,haproxy,to measure programs on wirepath,true)
	$(call want,wrk,wrk,to measure programs on wirepath,true)
	RECORD=1 cargo bench -p wirepath-benches $(if $(PART),--bench report -- $(PART))

.PHONY: figures
figures: tools ## docs/figures.md and its plots from docs/figures/history.jsonl, without measuring
	cargo run --release -p wirepath-benches --bin figures

.PHONY: sim
sim: tools ## TCP in virtual time: loss, reordering, damage, blackouts, full rings, empty pools over SEEDS=10000 seeds, and beside smoltcp; an order gateway, its standby and its exchange that die; RDMA over a wire with every fault; PART=trading for the gateway alone; SEED=n replays one with its trace
	cargo build --release -p wirepath-tests --bin sim
	@SEEDS=$(SEEDS) SEED=$(SEED) PART=$(PART) $(TARGET)/release/sim

.PHONY: soak
soak: root tools ## as root: 10,000 cases of each property; SOAK_FRAMES=100000000 over AF_XDP and a veth pair, a balance to the frame; 10 million over mlx5 rings of every length; datagrams of every size, captures at their pace, a gibibyte each way over TCP; large programs under the preload library; TRADE_SOAK_SECONDS=3600 of trading at 100,000 messages and 5,000 orders a second
	$(call want,ip,iproute2,for network namespaces,exit 2)
	$(call want,ibv_devinfo,rdma-core ibverbs-utils ibverbs-providers,for the software ConnectX,exit 2)
	PROPTEST_CASES=$(SOAK_CASES) cargo test --release -p wirepath -p wirepath-market -p wirepath-order-entry -p wirepath-matching-engine -p wirepath-sockets --lib
	PROPTEST_CASES=$(SOAK_CASES) cargo test --release -p wirepath-rdma --lib
	cargo build --profile demo -p exchange-sim -p order-gateway
	TRADE_FLOW=100k TRADE_SYMBOLS=64 TRADE_ORDERS=5000 scripts/demo-trade $(DEMO) $(TRADE_SOAK_SECONDS)
	cargo build --release -p wirepath-tests --bin soak
	SOAK_FRAMES=$(SOAK_FRAMES) $(TARGET)/release/soak
	MLX5_SOAK_FRAMES=$(MLX5_SOAK_FRAMES) cargo test --release -p wirepath-tests --test mlx5_soak -- --nocapture --test-threads 1
	cargo test -p wirepath-tests --test live_udp --test live_captures -- --ignored --nocapture
	cargo test --release -p wirepath-tests --test live_tcp -- --ignored --nocapture --test-threads 1
	$(call want,gdb,gdb,for tests of unmodified programs on wirepath,:)
	$(call want,node,nodejs,for tests of unmodified programs on wirepath,:)
	$(call want,java,default-jdk-headless,for tests of unmodified programs on wirepath,:)
	$(call want,psql,postgresql,for tests of unmodified programs on wirepath,:)
	$(call want,mariadbd,mariadb-server,for tests of unmodified programs on wirepath,:)
	$(call want,go,golang-go,for tests of unmodified programs on wirepath,:)
	$(call want,/usr/lib/python3/dist-packages/grpc/__init__.py,python3-grpcio,for tests of unmodified programs on wirepath,:)
	cargo test --release -p wirepath-tests --test preload_large --test preload_grpc --test preload_churn --test preload_own_address --test preload -- --ignored --nocapture
	cargo test --release -p wirepath-cli --test go -- --ignored --nocapture
	cargo test --release -p wirepath-tests --test preload_faults -- --nocapture gdb
	$(call want,qemu-system-x86_64,qemu-system-x86,for a guest with the RoCE of Linux,:)
	$(call want,busybox,busybox-static,for a guest with the RoCE of Linux,:)
	$(call want,cpio,cpio,for a guest with the RoCE of Linux,:)
	$(call want,ib_write_bw,perftest,for a guest with the RoCE of Linux,:)
	$(call want,rping,rdmacm-utils,for a guest with the RoCE of Linux,:)
	$(call want,nft,nftables,for wires that lose frames,:)
	cargo test --release -p wirepath-tests --test rdma_rxe -- --include-ignored --nocapture
	cargo test --release -p wirepath-cli --test rdma -- --include-ignored --nocapture --test-threads 1
	cargo test --release -p order-gateway --test processes -- mirror::mirror_has_all_that_a_primary_sent_which_is_killed_a_thousand_times --exact --ignored --nocapture
	SCRIPTS=$(SOAK_SCRIPTS) cargo test --release -p wirepath-sockets --test differential --test differential_datagrams --test options --test waiting
	SCRIPTS=$(SOAK_SCRIPTS) cargo test --release -p wirepath-tests --test preload_scripts
	STRIDE=1 DRAWS=$(SOAK_SCRIPTS) cargo test --release -p wirepath-tests --test preload -- hostile

.PHONY: metal
metal: root tools ## as root: conformance and figures, RDMA too, on two ports of ConnectX NICs that a cable joins: make metal DEV=mlx5_0 PEER=mlx5_1 CORES=2,3
	$(if $(DEV),,$(error which port? add DEV=mlx5_0, or a PCI address or interface that `wirepath devices` names))
	$(if $(PEER),,$(error what is at the other end of the cable of $(DEV)? add PEER=mlx5_1, a port of this machine))
	$(call want,ibv_devinfo,rdma-core ibverbs-utils ibverbs-providers,for the ConnectX,:)
	cargo build --release -p wirepath-tests --bin metal
	@$(TARGET)/release/metal --device $(DEV) --peer $(PEER) $(if $(CORES),--cores $(CORES))
	$(if $(wildcard /sys/class/infiniband/$(DEV)),RDMA_DEV=$(DEV) RDMA_PEER=$(PEER) cargo test --release -p wirepath-rdma --features rdma-core,port --test provider,@echo "SKIPPED RDMA: name DEV and PEER as mlx5_0, by their names in verbs")

.PHONY: fuzz
fuzz: tools ## fuzz every parser and the pipeline under the address sanitizer, FUZZ_SECONDS=60 each; TARGETS="tcp arp" for these alone
	$(call want,c++,g++,to build libFuzzer,exit 2)
	@cargo fuzz --version >/dev/null 2>&1 || { echo "wirepath: installing cargo-fuzz"; cargo install --locked cargo-fuzz; }
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

# What verbs need that make network namespaces, or drive a NIC.
.PHONY: root
root:
	@[ "$$(id -u)" = 0 ] || { echo "wirepath: only root may do this: sudo make $(MAKECMDGOALS)" >&2; exit 2; }

# What every verb needs.
.PHONY: tools
tools:
	@command -v cargo >/dev/null || { echo "wirepath: cargo is missing; install Rust from https://rustup.rs" >&2; exit 2; }
	$(call want,cc,gcc libc6-dev,to link programs,exit 2)

# $(call want,COMMAND,PACKAGES,PURPOSE,OTHERWISE): installs a missing command, or a missing file that
# is named by its whole path, as root on a machine with apt. Elsewhere it names the packages and
# runs OTHERWISE.
define want
@command -v $(1) >/dev/null || [ -r "$(filter /%,$(1))" ] || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	echo "wirepath: installing $(2) $(3)"; \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends $(2) || $(4); \
else \
	echo "wirepath: $(1) is missing; install $(2) $(3)" >&2; $(4); \
fi
endef
