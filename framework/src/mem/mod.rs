//! Memory holds: regions of pages, pools of packet buffers, mbufs and bursts.
//!
//! Memory is allocated at start. A [`Region`] is one contiguous range of (huge)pages that a NIC can
//! register; a [`Pool`] cuts it into equal buffers and belongs to one worker; an [`Mbuf`] is an
//! owned 8-byte handle to one buffer; a [`Held`] is an explicit second handle that keeps the bytes
//! after the mbuf is freed or sent; a [`Burst`] is up to [`BURST_MAX`] mbufs that move together.
//!
//! ```text
//!  Region  | metadata | headroom | data ........ | tailroom || metadata | headroom | data ... | tailroom || ...
//!          ^ 128 B    ^                                     ^ next buffer: stride bytes on
//! ```
//!
//! A pool and its mbufs belong to one worker and never leave its thread. This floor imports `time`
//! and the crate `hugepages`; it does not know headers, protocols or devices.

mod copy;
#[allow(unsafe_code)]
mod fifo;
#[allow(unsafe_code)]
mod held;
#[allow(unsafe_code)]
mod mbuf;
#[allow(unsafe_code)]
mod metadata;
#[allow(unsafe_code)]
mod pool;
#[allow(unsafe_code)]
mod region;
#[allow(unsafe_code)]
mod rx_meta;
#[allow(unsafe_code)]
mod rx_slots;
mod sizing;

pub(crate) use copy::{SHORT_MAX, SHORT_MIN, copy_frame, copy_segments, gather};
pub(crate) use fifo::{Fifo, Span};
pub use held::{Held, Segments};
pub(crate) use hugepages::advise_large_pages;
pub use mbuf::Mbuf;
pub(crate) use mbuf::MbufRef;
pub(crate) use mbuf::prefetch_line;
pub(crate) use metadata::METADATA_LEN;
pub use metadata::{ChecksumStatus, Headers, L3, L4, RxInfo};
pub(crate) use metadata::{PacketInfo, PacketInfoWord};
pub(crate) use pool::CACHE_LINE;
pub use pool::{Layout, Pool, PoolError};
#[cfg_attr(not(all(feature = "mlx5", feature = "af-xdp")), allow(unused_imports))]
// for queues of a NIC that are lent
pub(crate) use region::Reservation;
pub use region::{Region, RegionError};
pub(crate) use rx_meta::{MetaTemplate, RxFrame, RxMeta, RxMetaMinimal, Templated};
pub(crate) use rx_slots::RxSlots;
pub use sizing::Sizing;

/// The most mbufs that move together. 64 handles are eight cache lines; with a larger burst the
/// first frame waits longer for the last, and the loop gets no cheaper.
pub const BURST_MAX: usize = 64;

/// Up to [`BURST_MAX`] owned mbufs. Making one allocates nothing.
///
/// It is the vector of the crate `arrayvec`, and not a type of ours around one, because devices of
/// other crates fill it by `push`, `try_push` and `extend`, and nodes take mbufs out by `drain`: a
/// wrapper would repeat these methods, and promise no more than they do.
pub type Burst = arrayvec::ArrayVec<Mbuf, BURST_MAX>;

#[cfg(test)]
mod tests;
