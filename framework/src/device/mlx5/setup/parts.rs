//! The memory of a queue's rings: the facts that `mlx5dv_init_obj` returns about the objects that
//! set-up made (mlx5.md 1.2). Set-up fills them in, and the data path takes them over; nothing here
//! is dereferenced. The code that fills them in must guarantee them, so making a [`MemoryOwner`] is
//! `unsafe`.

use core::ptr::NonNull;

pub(in crate::device::mlx5) use crate::device::mlx5::ring::MemoryOwner;

/// A completion queue.
pub(crate) struct CqParts {
    /// The first entry.
    pub(crate) ring: NonNull<u8>,
    /// Entries: a power of two.
    pub(crate) entry_count: u32,
    /// Bytes of an entry: 64, or 128 with the CQE in the upper half.
    pub(crate) entry_len: u32,
    /// Two big-endian words: consumer index, arm.
    pub(crate) doorbell: NonNull<[u32; 2]>,
    /// The register of eight bytes that arms the queue, if libmlx5 shows it.
    pub(crate) arm_register: Option<NonNull<u64>>,
    /// The CQ number, 24 bits.
    pub(crate) number: u32,
    /// The owner of the memory.
    pub(crate) memory_owner: MemoryOwner,
}

/// A receive ring, of a QP or of a WQ.
pub(crate) struct RqParts {
    /// The first WQE.
    pub(crate) ring: NonNull<u8>,
    /// WQEs: a power of two.
    pub(crate) wqe_count: u32,
    /// Bytes of a WQE: a power of two, 16 for each buffer that it can name.
    pub(crate) stride: u32,
    /// The key of the buffers' region.
    pub(crate) lkey: u32,
    /// The big-endian producer index.
    pub(crate) doorbell: NonNull<u32>,
    /// With several frames per WQE: log2 of a stride's bytes and of the strides of a WQE.
    pub(crate) striding: Option<(u32, u32)>,
    /// The owner of the memory.
    pub(crate) memory_owner: MemoryOwner,
}

/// A send ring.
pub(crate) struct SqParts {
    /// The first basic block.
    pub(crate) ring: NonNull<u8>,
    /// Basic blocks of 64 bytes: a power of two.
    pub(crate) wqebb_count: u32,
    /// The big-endian producer index.
    pub(crate) doorbell: NonNull<u32>,
    /// The UAR register.
    pub(crate) uar: NonNull<u8>,
    /// Bytes of a BlueFlame half; 0 if only plain doorbells of eight bytes are allowed.
    pub(crate) blueflame_len: u32,
    /// The QP number for control segments, 24 bits.
    pub(crate) number: u32,
    /// Bytes of header that each WQE must carry inline: 0 or 18.
    pub(crate) inline_len_min: u8,
    /// Units of the longest WQE that the device accepts.
    pub(crate) wqe_units_max: u32,
    /// The owner of the memory.
    pub(crate) memory_owner: MemoryOwner,
}

/// The features of a send queue: the device's capabilities without those that the configuration
/// disables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TxFeatures {
    /// Bytes of the longest frame, Ethernet header to last payload byte, an inserted tag included.
    pub(crate) frame_len_max: u32,
    /// Several frames per WQE (`mlx5_ib_support_multi_pkt_send_wqes` bit 2, mlx5.md 1.4).
    pub(crate) multi_packet: bool,
    /// IPv4, UDP and TCP checksums.
    pub(crate) checksums: bool,
    /// Inserts VLAN tags. Otherwise we write them, inline.
    pub(crate) vlan_insert: bool,
    /// Bytes of the longest payload that it segments; 0 without segmentation.
    pub(crate) segmentation_len_max: u32,
}
