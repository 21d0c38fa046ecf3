//! Where the rings of a queue lie: what `mlx5dv_init_obj` says of the objects that set-up made
//! (mlx5.md 1.2). Set-up fills these in, the data path takes them over; nothing here is touched.
//! Whoever fills them in answers for them: making a [`Keeper`] is `unsafe`.

use core::ptr::NonNull;

pub(in crate::device::mlx5) use super::super::ring::Keeper;

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
    /// Who owns the memory.
    pub(in crate::device::mlx5) keeper: Keeper,
}

/// A receiving ring, of a QP or of a WQ.
pub(in crate::device::mlx5) struct RqParts {
    /// The first WQE.
    pub(in crate::device::mlx5) ring: NonNull<u8>,
    /// WQEs: a power of two.
    pub(in crate::device::mlx5) wqe_count: u32,
    /// Bytes of a WQE: a power of two, 16 for each buffer that it can name.
    pub(in crate::device::mlx5) stride: u32,
    /// The key of the region that buffers are cut from.
    pub(in crate::device::mlx5) lkey: u32,
    /// The big-endian producer index.
    pub(in crate::device::mlx5) doorbell: NonNull<u32>,
    /// Several frames a WQE: log2 of a stride's bytes and of the strides of a WQE.
    pub(in crate::device::mlx5) striding: Option<(u32, u32)>,
    /// Who owns the memory.
    pub(in crate::device::mlx5) keeper: Keeper,
}

/// A sending ring.
pub(in crate::device::mlx5) struct SqParts {
    /// The first basic block.
    pub(in crate::device::mlx5) ring: NonNull<u8>,
    /// Basic blocks of 64 bytes: a power of two.
    pub(in crate::device::mlx5) wqebb_count: u32,
    /// The big-endian producer index.
    pub(in crate::device::mlx5) doorbell: NonNull<u32>,
    /// The UAR register.
    pub(in crate::device::mlx5) uar: NonNull<u8>,
    /// Bytes of a BlueFlame half; 0 where only plain doorbells of eight bytes may be rung.
    pub(in crate::device::mlx5) blueflame_len: u32,
    /// The number that control segments carry, 24 bits.
    pub(in crate::device::mlx5) number: u32,
    /// Bytes of header that each WQE must carry inline: 0 or 18.
    pub(in crate::device::mlx5) inline_len_min: u8,
    /// SqMemory of the longest WQE that the device takes.
    pub(in crate::device::mlx5) wqe_units_max: u32,
    /// Who owns the memory.
    pub(in crate::device::mlx5) keeper: Keeper,
}

/// What a sending queue may be asked for: what the device was found to do, less what the
/// configuration forbids.
#[derive(Clone, Copy, Debug)]
pub(in crate::device::mlx5) struct TxFeatures {
    /// Bytes of the longest frame, Ethernet header to last payload byte, an inserted tag included.
    pub(in crate::device::mlx5) frame_len_max: u32,
    /// Several frames a WQE (`mlx5_ib_support_multi_pkt_send_wqes` bit 2, mlx5.md 1.4).
    pub(in crate::device::mlx5) multi_packet: bool,
    /// IPv4, UDP and TCP checksums.
    pub(in crate::device::mlx5) checksums: bool,
    /// Inserts VLAN tags. What does not gets them written by us, inline.
    pub(in crate::device::mlx5) vlan_insert: bool,
    /// Bytes of the longest payload that it cuts into segments; 0 where it does not.
    pub(in crate::device::mlx5) segmentation_len_max: u32,
}
