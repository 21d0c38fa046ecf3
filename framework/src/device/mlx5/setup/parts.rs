//! The memory of a queue's rings: the facts that `mlx5dv_init_obj` returns about the objects that
//! set-up made (mlx5.md 1.2). Set-up fills them in, and the data path takes them over; nothing here
//! is dereferenced. The code that fills them in must guarantee them, so making a [`MemoryOwner`] is
//! `unsafe`.

use core::ptr::NonNull;

pub(in crate::device::mlx5) use super::super::ring::MemoryOwner;

/// A completion queue.
pub(in crate::device::mlx5) struct CqParts {
    /// The first entry.
    pub(in crate::device::mlx5) ring: NonNull<u8>,
    /// Entries: a power of two.
    pub(in crate::device::mlx5) entry_count: u32,
    /// Bytes of an entry: 64, or 128 with the CQE in the upper half.
    pub(in crate::device::mlx5) entry_len: u32,
    /// Two big-endian words: consumer index, arm.
    pub(in crate::device::mlx5) doorbell: NonNull<[u32; 2]>,
    /// The register of eight bytes that arms the queue, if libmlx5 shows it.
    pub(in crate::device::mlx5) arm_register: Option<NonNull<u64>>,
    /// The CQ number, 24 bits.
    pub(in crate::device::mlx5) number: u32,
    /// The owner of the memory.
    pub(in crate::device::mlx5) memory_owner: MemoryOwner,
}

/// A receive ring, of a QP or of a WQ.
pub(in crate::device::mlx5) struct RqParts {
    /// The first WQE.
    pub(in crate::device::mlx5) ring: NonNull<u8>,
    /// WQEs: a power of two.
    pub(in crate::device::mlx5) wqe_count: u32,
    /// Bytes of a WQE: a power of two, 16 for each buffer that it can name.
    pub(in crate::device::mlx5) stride: u32,
    /// The key of the buffers' region.
    pub(in crate::device::mlx5) lkey: u32,
    /// The big-endian producer index.
    pub(in crate::device::mlx5) doorbell: NonNull<u32>,
    /// With several frames per WQE: log2 of a stride's bytes and of the strides of a WQE.
    pub(in crate::device::mlx5) striding: Option<(u32, u32)>,
    /// The owner of the memory.
    pub(in crate::device::mlx5) memory_owner: MemoryOwner,
}

/// A send ring.
pub(in crate::device::mlx5) struct SqParts {
    /// The first basic block.
    pub(in crate::device::mlx5) ring: NonNull<u8>,
    /// Basic blocks of 64 bytes: a power of two.
    pub(in crate::device::mlx5) wqebb_count: u32,
    /// The big-endian producer index.
    pub(in crate::device::mlx5) doorbell: NonNull<u32>,
    /// The UAR register.
    pub(in crate::device::mlx5) uar: NonNull<u8>,
    /// Bytes of a BlueFlame half; 0 if only plain doorbells of eight bytes are allowed.
    pub(in crate::device::mlx5) blueflame_len: u32,
    /// The QP number for control segments, 24 bits.
    pub(in crate::device::mlx5) number: u32,
    /// Bytes of header that each WQE must carry inline: 0 or 18.
    pub(in crate::device::mlx5) inline_len_min: u8,
    /// Units of the longest WQE that the device accepts.
    pub(in crate::device::mlx5) wqe_units_max: u32,
    /// The owner of the memory.
    pub(in crate::device::mlx5) memory_owner: MemoryOwner,
}

/// The features of a send queue: the device's capabilities without those that the configuration
/// disables.
#[derive(Clone, Copy, Debug)]
pub(in crate::device::mlx5) struct TxFeatures {
    /// Bytes of the longest frame, Ethernet header to last payload byte, an inserted tag included.
    pub(in crate::device::mlx5) frame_len_max: u32,
    /// Several frames per WQE (`mlx5_ib_support_multi_pkt_send_wqes` bit 2, mlx5.md 1.4).
    pub(in crate::device::mlx5) multi_packet: bool,
    /// IPv4, UDP and TCP checksums.
    pub(in crate::device::mlx5) checksums: bool,
    /// Inserts VLAN tags. Otherwise we write them, inline.
    pub(in crate::device::mlx5) vlan_insert: bool,
    /// Bytes of the longest payload that it segments; 0 without segmentation.
    pub(in crate::device::mlx5) segmentation_len_max: u32,
}
