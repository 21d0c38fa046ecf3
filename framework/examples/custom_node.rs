//! A custom node in forty lines: it drops datagrams that are too small to be ours, counts the
//! others, and sits between IPv4 and UDP, which do not know it.
//!
//! `cargo run --release -p wirepath --example custom_node`

use wirepath::counters::{Block, Counter, Drops, Scope, Unit};
use wirepath::device::memory::{MemoryConfig, pair};
use wirepath::mem::Mbuf;
use wirepath::pipeline::{Cx, Node, NodeTree, Unhandled, discard};
use wirepath::time::Instant;
use wirepath::worker::Worker;

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

    // A worker lends its pool, its host and its queue to the node, over a wire of plain memory.
    let (mut port, _peer) = pair("wire", MemoryConfig::default());
    let mut worker = Worker::builder(&mut port)?.build((), &scope)?;
    let in_use = worker.with_app(Instant::ZERO, |app, cx| {
        let before = cx.pool.in_use();
        for len in [10, 20, 30] {
            let mbuf = cx.pool.alloc_copy(&vec![0; len]).expect("the pool has many buffers");
            gate.push(mbuf, app, cx);
        }
        cx.pool.in_use() - before
    });
    for sample in block.snapshot().samples.iter().filter(|sample| sample.name.contains("gate")) {
        println!("{} {:?}", sample.name, sample.reading);
    }
    assert_eq!((gate.passed.get(), gate.drops.get(GateDrop::TooSmall), in_use), (2, 1, 0));
    Ok(())
}
