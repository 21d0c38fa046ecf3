//! The rig for tests of nodes: a pipeline, an app, and a device that records the frames posted to
//! it.
#![allow(clippy::unwrap_used)] // a panic here is the report

use crate::counters::{Block, Scope};
use crate::device::{Offload, TxQueue};
use crate::mem::{Mbuf, Pool};
use crate::pipeline::{App, Cx, Egress, EgressConfig, Node, tcp};
use crate::proto::{HashSeed, Host, SocketCapacity, Timers, UdpSockets};
use crate::time::Instant;

/// A transmit queue that records frames, up to a limit.
pub(crate) struct Outbox {
    pub(crate) frames: Vec<Mbuf>,
    pub(crate) offloads: Vec<Offload>,
    pub(crate) room: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        Self { frames: Vec::new(), offloads: Vec::new(), room: 64 }
    }
}

impl TxQueue for Outbox {
    fn post(&mut self, mbuf: Mbuf, offload: Offload) -> Result<(), Mbuf> {
        if self.room() == 0 {
            return Err(mbuf);
        }
        self.frames.push(mbuf);
        self.offloads.push(offload);
        Ok(())
    }
    fn ring_doorbell(&mut self, _now: Instant) {}
    fn reap(&mut self) -> usize {
        0
    }
    fn room(&mut self) -> usize {
        self.room - self.frames.len()
    }
    fn in_flight(&self) -> usize {
        self.frames.len()
    }

    fn refresh_counters(&mut self) {}
}

/// A pipeline, and all that is in a [`Cx`].
pub(crate) struct Bench<N, A> {
    pub(crate) stack: N,
    pub(crate) app: A,
    pub(crate) host: Host,
    pub(crate) sockets: UdpSockets,
    pub(crate) egress: Egress,
    pub(crate) outbox: Outbox,
    pub(crate) now: Instant,
    pub(crate) pushed: u64,
    pub(crate) block: Block,
    pub(crate) pool: Pool,
}

impl<N: Node<A>, A: App> Bench<N, A> {
    pub(crate) fn new(host: Host, app: A, egress: EgressConfig, stack: impl FnOnce(&Host, &Scope) -> N) -> Self {
        let block = Block::heap();
        let scope = block.scope("worker0");
        Self {
            stack: stack(&host, &scope),
            app,
            host,
            sockets: UdpSockets::new(SocketCapacity::default(), HashSeed::new(3, 4)),
            egress: Egress::new(egress, &scope),
            outbox: Outbox::default(),
            now: Instant::from_nanos(1_000),
            pushed: 0,
            block,
            pool: Pool::heap(256).unwrap(),
        }
    }

    pub(crate) fn cx<T>(&mut self, act: impl FnOnce(&mut N, &mut A, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx {
            now: self.now,
            pool: &self.pool,
            host: &mut self.host,
            sockets: &mut self.sockets,
            tcp: &mut tcp::TcpSockets::none(),
            timers: &mut Timers::new(1),
            egress: &mut self.egress,
            tx: &mut self.outbox,
        };
        act(&mut self.stack, &mut self.app, &mut cx)
    }

    pub(crate) fn push(&mut self, frame: &[u8]) {
        let mbuf = self.pool.alloc_copy(frame).unwrap();
        self.push_mbuf(mbuf);
    }

    pub(crate) fn push_mbuf(&mut self, mbuf: Mbuf) {
        self.pushed += 1;
        self.cx(|stack, app, cx| stack.push(mbuf, app, cx));
    }

    pub(crate) fn take_frames(&mut self) -> Vec<Vec<u8>> {
        let frames = self.outbox.frames.drain(..);
        frames.map(|mbuf| (mbuf.segments().flatten().copied().collect(), mbuf.free()).0).collect()
    }

    /// The counter of that name in the scope of the worker.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.block.snapshot().count(&format!("worker0/{name}")).unwrap_or_else(|| panic!("no counter {name}"))
    }

    /// The sum of drops in the scopes that `counts` picks.
    pub(crate) fn dropped(&self, counts: impl Fn(&str) -> bool) -> u64 {
        let snapshot = self.block.snapshot();
        let drops = snapshot.samples.iter().filter(|sample| sample.class.is_drop() && counts(&sample.name));
        drops.map(|sample| snapshot.count(&sample.name).unwrap()).sum()
    }
}
