//! The reasons for which machines drop, as lists that the nodes above embed in their own: `proto`
//! has no counters, so it only says the names.

use crate::counters::DropReason;
use crate::proto::tcp::TcpDrop;
use crate::proto::{NeighborDrop, NotLearned};

macro_rules! counted {
    ($($list:ty),+) => {
        $(impl DropReason for $list {
            const NAMES: &'static [&'static str] = Self::COUNTED_AS;

            #[inline(always)]
            fn index(self) -> usize {
                self as usize
            }
        })+
    };
}

counted!(TcpDrop, NeighborDrop, NotLearned);
