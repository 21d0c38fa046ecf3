//! Our forwarder: frames that arrive at the far end of a pair go back out of it with their MAC
//! addresses swapped, like testpmd's `macswap`.

use wirepath::counters::{Counter, Drops, Scope, Unit};
use wirepath::device::af_xdp::{AfXdpTx, Mode};
use wirepath::device::steering::Rule;
use wirepath::device::{Offload, TxQueue};
use wirepath::mem::Mbuf;
use wirepath::pipeline::{Cx, Node, NodeTree, discard};

use super::flood::{Sender, Source, open_socket};
use super::pair::{FAR, NEAR, Pair};
use super::port::{self, Port, PortSetup};

/// The default destination of testpmd's `mac`. The kernel of the near end drops frames for others
/// at once.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 0];

wirepath::drop_reasons! {
    /// Why a frame is not sent back.
    pub enum ReflectorDrop {
        /// Shorter than an Ethernet header.
        TooShort => "too_short",
        /// The ring to send is full.
        RingFull => "ring_full",
    }
}

/// Sends every frame back to its source.
pub struct Reflect {
    /// Destination and source MAC address of sent frames.
    stations: [u8; 12],
    frames: Counter,
    drops: Drops<ReflectorDrop>,
}

impl Reflect {
    /// Its counters go below `scope`.
    pub fn new(scope: &Scope) -> Self {
        let scope = scope.scope("reflect");
        let mut stations = [0; 12];
        stations[..6].copy_from_slice(&NOBODY);
        stations[6..].copy_from_slice(&FAR.mac.0);
        Self { stations, frames: scope.counter("frames", Unit::Frames), drops: scope.drops() }
    }
}

impl<A> Node<A> for Reflect {
    #[inline]
    fn push(&mut self, mut mbuf: Mbuf, _app: &mut A, cx: &mut Cx<'_>) {
        let Some(stations) = mbuf.bytes_mut().first_chunk_mut::<12>() else {
            return discard(mbuf, &mut self.drops, ReflectorDrop::TooShort);
        };
        *stations = self.stations;
        match cx.tx.post(mbuf, Offload::NONE) {
            Ok(()) => self.frames.inc(),
            Err(mbuf) => discard(mbuf, &mut self.drops, ReflectorDrop::RingFull),
        }
    }

    fn tick(&mut self, _app: &mut A, _cx: &mut Cx<'_>) {}

    fn kept(&self) -> usize {
        0
    }

    fn outline(&self, outline: &mut NodeTree) {
        outline.node("reflect", "every frame goes back", |_| ());
    }
}

/// The forwarder at the far end, on the calling thread, which is in its namespace.
///
/// # Errors
/// Why the port does not open.
pub fn open<Tx: TxQueue>(wrap: impl FnOnce(AfXdpTx) -> Tx) -> Result<Port<Tx, Reflect, ()>, String> {
    // In native mode, as testpmd: in generic mode, GSO frames of a kernel would arrive in one
    // piece.
    let place = PortSetup { ours: FAR, peer: NEAR, mode: Mode::Native, ring_len: port::RING_LEN };
    Port::open(place, &Rule::ALL, wrap, Reflect::new, ())
}

/// A sender at full rate needs a second core. Here one thread sends some frames and forwards them,
/// and repeats.
pub struct Lockstep {
    sender: Sender,
    port: Port<AfXdpTx, Reflect, ()>,
}

impl Lockstep {
    /// Runs `act` with it.
    ///
    /// # Errors
    /// No namespaces, no socket, no port.
    pub fn run<T: Send>(act: impl FnOnce(&mut Self) -> T + Send) -> Result<T, String> {
        let pair = Pair::new()?;
        let socket = open_socket(&pair, Source::Frames)?;
        pair.far.run(|| Ok(act(&mut Self { sender: Sender::new(socket, Source::Frames), port: open(|tx| tx)? })))
    }

    /// Sends some frames and forwards them; returns their number.
    ///
    /// # Errors
    /// Some frames did not arrive.
    pub fn round(&mut self) -> Result<usize, String> {
        /// The most turns without a frame: the frames arrive before the sender's call returns.
        const IDLE_POLLS_MAX: u32 = 100_000;
        let (sent, mut left, mut idle) = (self.sender.send_one(), 0, 0);
        while left < sent {
            let received = self.port.turn();
            left += received;
            idle = if received > 0 { 0 } else { idle + 1 };
            if idle > IDLE_POLLS_MAX {
                return Err(format!("of {sent} frames {left} came to the forwarder"));
            }
        }
        Ok(sent)
    }
}
