//! A custom node in forty lines: it drops datagrams that are too small to be ours, counts the
//! others, and sits between IPv4 and UDP, which do not know it.
//!
//! `cargo run --release -p wirepath --example custom_node`

use wirepath::counters::{Block, Counter, Drops, Scope, Unit};
use wirepath::mem::{Mbuf, Pool};
use wirepath::pipeline::{Cx, Node, NodeTree, Unhandled, discard};

wirepath::drop_reasons! {
    /// Why the gate drops.
    pub enum GateDrop {
        /// Smaller than the smallest message.
        TooSmall => "too_small",
    }
}

/// Lets packets of at least `len_min` bytes through to `next`.
struct Gate<N> {
    len_min: usize,
    next: N,
    passed: Counter,
    drops: Drops<GateDrop>,
}

impl<N> Gate<N> {
    fn new(len_min: usize, next: N, scope: &Scope) -> Self {
        let scope = scope.scope("gate");
        Self { len_min, next, passed: scope.counter("passed", Unit::Packets), drops: scope.drops() }
    }
}

impl<A, N: Node<A>> Node<A> for Gate<N> {
    fn push(&mut self, mbuf: Mbuf, app: &mut A, cx: &mut Cx<'_>) {
        if mbuf.len() < self.len_min {
            return discard(mbuf, &mut self.drops, GateDrop::TooSmall);
        }
        self.passed.inc();
        self.next.push(mbuf, app, cx);
    }

    fn tick(&mut self, app: &mut A, cx: &mut Cx<'_>) {
        self.next.tick(app, cx);
    }

    fn kept(&self) -> usize {
        Node::<A>::kept(&self.next)
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("gate", format!("at least {} bytes", self.len_min), |outline| self.next.outline(outline));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let block = Block::heap();
    let scope = block.scope("worker0");
    let mut gate = Gate::new(20, Unhandled::new("end", &scope), &scope);
    let mut outline = NodeTree::new();
    Node::<()>::outline(&gate, &mut outline);
    print!("{outline}");

    let pool = Pool::heap(8)?;
    with_cx(&pool, &scope, |cx| {
        for len in [10, 20, 30] {
            let mbuf = cx.pool.alloc_copy(&vec![0; len]).expect("the pool has eight buffers");
            gate.push(mbuf, &mut (), cx);
        }
    })?;
    for sample in block.snapshot().samples.iter().filter(|sample| sample.name.contains("gate")) {
        println!("{} {:?}", sample.name, sample.reading);
    }
    assert_eq!((gate.passed.get(), gate.drops.get(GateDrop::TooSmall), pool.in_use()), (2, 1, 0));
    Ok(())
}

/// The parts that a worker lends to its nodes, made by hand, so that a node is tested without a
/// device or a thread.
fn with_cx(pool: &Pool, scope: &Scope, act: impl FnOnce(&mut Cx<'_>)) -> Result<(), Box<dyn std::error::Error>> {
    use wirepath::device::memory::{MemoryConfig, pair};
    use wirepath::device::{Device, Queue};
    use wirepath::pipeline::{Egress, EgressConfig};
    use wirepath::proto::{Host, HostConfig, InterfaceId, SocketCapacity, Timers, UdpSockets};
    use wirepath::wire::{MacAddr, VlanTags};

    let seed = wirepath::worker::random_seed();
    let config = HostConfig {
        interface: InterfaceId(0),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        vlan: VlanTags::NONE,
        mtu: 1500,
        addresses_max: 1,
        routes_max: 1,
        neighbors_max: 1,
    };
    let (mut port, _peer) = pair("wire", MemoryConfig::default());
    let (_rx, mut tx) = port.take_queue(0)?.open(pool, &scope.scope("device"))?;
    act(&mut Cx {
        now: wirepath::time::Instant::ZERO,
        pool,
        host: &mut Host::new(config, seed)?,
        tcp: &mut wirepath::pipeline::tcp::TcpSockets::none(),
        sockets: &mut UdpSockets::new(SocketCapacity::default(), seed),
        timers: &mut Timers::new(1),
        egress: &mut Egress::new(EgressConfig::quiet(seed), scope),
        tx: &mut tx,
    });
    Ok(())
}
