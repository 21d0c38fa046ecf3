//! Where the rings of a queue lie: what `mlx5dv_init_obj` says of the objects that set-up made (mlx5.md 1.2). Set-up fills
//! these in, the data path takes them over; nothing here is touched. Whoever fills them in answers for them: making a
//! [`Keeper`] is `unsafe`.

use core::ptr::NonNull;

pub(super) use super::ring::Keeper;

/// A completion queue.
pub(super) struct CqParts {
    /// The first entry.
    pub(super) ring: NonNull<u8>,
    /// Entries: a power of two.
    pub(super) entry_count: u32,
    /// Bytes of an entry: 64, or 128 with the CQE in the upper half.
    pub(super) entry_len: u32,
    /// Two big-endian words: consumer index, arm.
    pub(super) doorbell: NonNull<[u32; 2]>,
    /// Who owns the memory.
    pub(super) keeper: Keeper,
}

/// A receiving ring, of a QP or of a WQ.
pub(super) struct RqParts {
    /// The first WQE.
    pub(super) ring: NonNull<u8>,
    /// WQEs: a power of two.
    pub(super) wqe_count: u32,
    /// Bytes of a WQE: a power of two, 16 for each buffer that it can name.
    pub(super) stride: u32,
    /// The key of the region that buffers are cut from.
    pub(super) lkey: u32,
    /// The big-endian producer index.
    pub(super) doorbell: NonNull<u32>,
    /// Several frames a WQE: log2 of a stride's bytes and of the strides of a WQE.
    pub(super) striding: Option<(u32, u32)>,
    /// Who owns the memory.
    pub(super) keeper: Keeper,
}

/// A sending ring.
pub(super) struct SqParts {
    /// The first basic block.
    pub(super) ring: NonNull<u8>,
    /// Basic blocks of 64 bytes: a power of two.
    pub(super) wqebb_count: u32,
    /// The big-endian producer index.
    pub(super) doorbell: NonNull<u32>,
    /// The UAR register.
    pub(super) uar: NonNull<u8>,
    /// Bytes of a BlueFlame half; 0 where only plain doorbells of eight bytes may be rung.
    pub(super) blueflame_len: u32,
    /// The number that control segments carry, 24 bits.
    pub(super) number: u32,
    /// Bytes of header that each WQE must carry inline: 0 or 18.
    pub(super) inline_len_min: u8,
    /// SqMemory of the longest WQE that the device takes.
    pub(super) wqe_units_max: u32,
    /// Who owns the memory.
    pub(super) keeper: Keeper,
}

/// What a sending queue may be asked for: what the device was found to do, less what the configuration forbids.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxFeatures {
    /// Bytes of the longest frame, Ethernet header to last payload byte, an inserted tag included.
    pub(super) frame_len_max: u32,
    /// Several frames a WQE (`mlx5_ib_support_multi_pkt_send_wqes` bit 2, mlx5.md 1.4).
    pub(super) multi_packet: bool,
    /// IPv4, UDP and TCP checksums.
    pub(super) checksums: bool,
    /// Inserts VLAN tags. What does not gets them written by us, inline.
    pub(super) vlan_insert: bool,
    /// Bytes of the longest payload that it cuts into segments; 0 where it does not.
    pub(super) segmentation_len_max: u32,
}
