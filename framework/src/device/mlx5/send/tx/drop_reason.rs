//! Why a posted frame is dropped: before its WQE, or by the NIC.

use crate::device::mlx5::completion::cqe::Syndrome;

crate::drop_reasons! {
    /// Why a posted frame is dropped.
    pub(crate) enum Mlx5TxDrop {
        /// Longer than the port's frames.
        TooLong => "too_long",
        /// Shorter than an Ethernet header.
        TooShort => "too_short",
        /// A chain of more buffers than a WQE points to.
        TooManySegments => "too_many_segments",
        /// Asks for checksums or segmentation that the device does not support.
        OffloadUnsupported => "offload_unsupported",
        /// The frame is to be segmented, but its link, IP and TCP headers are not where the mbuf
        /// says.
        HeadersUnknown => "headers_unknown",
        /// To be segmented, with a header longer than the device can repeat.
        HeaderTooLong => "header_too_long",
        /// Bytes that are not in the pool that the queue was opened with.
        ForeignBuffer => "foreign_buffer",
        /// The NIC found inconsistent lengths in the WQE (syndrome 01).
        LocalLength => "error_local_length",
        /// The NIC could not execute the WQE (syndrome 02).
        LocalQpOperation => "error_local_qp_operation",
        /// The NIC may not read the buffer (syndrome 04).
        LocalProtection => "error_local_protection",
        /// The NIC has no right to the buffer (syndrome 11).
        LocalAccess => "error_local_access",
        /// An error of another kind.
        OtherError => "error_other",
        /// Posted behind a frame that failed, or in flight when the queue was reset.
        Flushed => "flushed",
    }
}

impl Mlx5TxDrop {
    /// The reason for the frames of a WQE with this syndrome.
    pub(super) fn of(syndrome: Syndrome) -> Self {
        match syndrome {
            Syndrome::LocalLength => Self::LocalLength,
            Syndrome::LocalQpOperation => Self::LocalQpOperation,
            Syndrome::LocalProtection => Self::LocalProtection,
            Syndrome::LocalAccess => Self::LocalAccess,
            Syndrome::Flushed => Self::Flushed,
            Syndrome::Other(_) => Self::OtherError,
        }
    }
}
