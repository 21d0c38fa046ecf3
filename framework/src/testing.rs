//! Items that tests need but applications do not: here with the feature `testing`.
//!
//! - [`conformance`]: the suite that each device passes, for devices of one's own.
//! - [`mlx5`]: the rings of a ConnectX in plain memory, and a NIC that plays the other side.

pub mod conformance {
    //! The suite that each device passes.
    pub use crate::device::testing::conformance::*;
}

#[cfg(feature = "mlx5")]
pub mod mlx5 {
    //! The rings of a ConnectX in plain memory.
    pub use crate::device::mlx5::testing::{plain::*, plain_tx::*};
}

#[doc(hidden)]
pub mod proto {
    //! The machines by themselves, for the tests and benches of this repository. They change
    //! without notice.
    pub use crate::proto::claim::*;
    pub use crate::proto::demux::*;
    pub use crate::proto::fragmentation::*;
    pub use crate::proto::host::*;
    pub use crate::proto::icmp::*;
    pub use crate::proto::identification::*;
    pub use crate::proto::membership::*;
    pub use crate::proto::neighbor::*;
    pub use crate::proto::path_mtu::*;
    pub use crate::proto::ports::*;
    pub use crate::proto::rate_limit::*;
    pub use crate::proto::reassembly::*;
    pub use crate::proto::sockets::*;
    pub use crate::proto::source_filter::*;
}

#[doc(hidden)]
pub mod roster {
    //! The file between a worker and its guardian, as above.
    pub use crate::pipeline::tcp::roster::layout::*;
    pub use crate::pipeline::tcp::roster::reader::*;
}

#[doc(hidden)]
pub mod tcp {
    //! The machine of TCP by itself, as above.
    pub use crate::proto::tcp::*;
}
