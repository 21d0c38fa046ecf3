//! Our driver, opened as any program opens it.

use core::net::SocketAddrV4;

use wirepath::counters::{Block, Scope};
use wirepath::device::mlx5::{Feature, Mlx5Config, Mlx5Device, Mlx5Rx, Mlx5Tx};
use wirepath::device::steering::Rule;
use wirepath::device::{Device, Offload, Queue, RxQueue, TxQueue};
use wirepath::mem::{Burst, Mbuf, Pool};
use wirepath::time::Instant;

use super::{BURST, Error, RING, Receive, Send, frame_to};
use crate::receiver::ROUND;

/// The options of opening the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mlx5Mode {
    /// As by default.
    Usual,
    /// Completions are compressed.
    Compressed,
    /// Each frame has a separate WQE.
    SinglePacket,
}

/// An open queue. Its halves are dropped first: they hold mbufs.
struct Opened {
    rx: Mlx5Rx,
    tx: Mlx5Tx,
    device: Mlx5Device,
    pool: Pool,
    _block: Block,
}

/// Sends.
pub struct OurSender {
    /// A round.
    bursts: [Burst; ROUND / BURST],
    /// The next burst to send.
    next: usize,
    opened: Opened,
    frame: Vec<u8>,
}

/// Receives.
pub struct OurReceiver {
    burst: Burst,
    opened: Opened,
}

impl OurSender {
    /// Opens a device, with frames to `group`.
    ///
    /// # Errors
    /// The device refused a request.
    pub fn open(device: &str, group: SocketAddrV4, wish: Mlx5Mode) -> Result<Self, Error> {
        let bursts = core::array::from_fn(|_| Burst::new());
        Ok(Self { bursts, next: 0, opened: open(device, wish)?, frame: frame_to(group) })
    }
}

impl OurReceiver {
    /// Opens a device, for frames to `group`.
    ///
    /// # Errors
    /// The device refused a request.
    pub fn open(device: &str, group: SocketAddrV4, wish: Mlx5Mode) -> Result<Self, Error> {
        let mut opened = open(device, wish)?;
        opened.device.steer(&Rule::udp(*group.ip(), group.port()), 0)?;
        Ok(Self { burst: Burst::new(), opened })
    }
}

impl Send for OurSender {
    fn prepare(&mut self) {
        let (pool, frame) = (&self.opened.pool, &self.frame);
        for burst in &mut self.bursts {
            burst.extend((0..BURST).map(|_| pool.alloc_copy(frame).expect("the pool has mbufs for two rounds")));
        }
    }

    #[inline(always)]
    fn send(&mut self) {
        let tx = &mut self.opened.tx;
        tx.reap();
        let posted = tx.post_burst(&mut self.bursts[self.next], Offload::NONE);
        assert_eq!(posted, BURST, "the ring has room for two rounds");
        tx.ring_doorbell(Instant::ZERO);
        self.next = (self.next + 1) % self.bursts.len();
    }
}

impl Receive for OurReceiver {
    #[inline(always)]
    fn receive(&mut self) -> usize {
        self.opened.rx.receive(&mut self.burst, BURST, &self.opened.pool, Instant::ZERO)
    }

    fn clear(&mut self, received: usize) {
        assert_eq!(self.burst.len(), received, "what was received is in the burst");
        self.burst.drain(..).for_each(Mbuf::free);
    }
}

fn open(device: &str, wish: Mlx5Mode) -> Result<Opened, Error> {
    let when = |is_wanted| if is_wanted { Feature::Required } else { Feature::Off };
    let config = Mlx5Config {
        rx_ring_len: RING as u32,
        tx_ring_len: RING as u32,
        compression: when(wish == Mlx5Mode::Compressed),
        multi_packet_send: when(wish != Mlx5Mode::SinglePacket),
        ..Mlx5Config::new(device)
    };
    let mut device = Mlx5Device::open(&config)?;
    let block = Block::heap();
    let pool = Pool::heap(4 * RING)?;
    let (rx, tx) = device.take_queue(0)?.open(&pool, &Scope::clone(&block.scope("worker0")))?;
    Ok(Opened { rx, tx, device, pool, _block: block })
}
