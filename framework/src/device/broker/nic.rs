//! A queue of a ConnectX as a broker describes it to the program that polls it: plain numbers. What
//! a program does with them is `device/mlx5/lend`.

/// Timestamps by the NIC's clock, whose relation to the wall clock the broker shows.
pub(crate) const WALL: u32 = 1;
/// Timestamps that are the time of day itself.
pub(crate) const REAL_TIME: u32 = 2;

/// Generates a struct of 32-bit numbers that is an array on the wire, in the order of its fields.
macro_rules! numbers {
    ($(#[$attribute:meta])* $name:ident, $count:literal { $($(#[$comment:meta])* $field:ident,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name { $($(#[$comment])* pub(crate) $field: u32,)* }

        impl $name {
            pub(crate) fn of([$($field),*]: [u32; $count]) -> Self {
                Self { $($field),* }
            }

            pub(crate) fn words(&self) -> [u32; $count] {
                [$(self.$field),*]
            }
        }
    };
}

numbers! {
    /// The features of a port, before a queue of it is lent. A flag is 0 or 1.
    NicFeatures, 9 {
        /// Bytes of the longest frame.
        frame_len_max,
        checksums,
        /// Bytes of a TCP payload that the NIC cuts into segments; 0 without segmentation.
        segmentation_len_max,
        /// Several frames in a WQE.
        multi_packet,
        /// The NIC inserts VLAN tags.
        vlan_insert,
        /// Header bytes that each WQE carries inline.
        inline_len_min,
        /// Units of the longest WQE.
        wqe_units_max,
        rules_max,
        /// Of each frame: [`WALL`], [`REAL_TIME`], or 0 for none.
        timestamps,
    }
}

numbers! {
    /// The rings of a queue, by their places in the memory behind the packet buffers; the page of
    /// its register, by its number in the device's file.
    NicQueue, 22 {
        /// Bytes behind the packet buffers.
        rings_len,
        lkey,
        uar_page,
        /// The place of the register in its page.
        uar_place,
        blueflame_len,
        sq,
        sq_block_count,
        sq_doorbell,
        sq_number,
        tx_cq,
        tx_cq_entry_count,
        tx_cq_doorbell,
        tx_cq_number,
        rq,
        rq_wqe_count,
        rq_stride,
        rq_number,
        rq_doorbell,
        rx_cq,
        rx_cq_entry_count,
        rx_cq_doorbell,
        rx_cq_number,
    }
}
