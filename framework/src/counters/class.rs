//! What a counter is in the account of packets, so that a reader need not know it by its name.

/// Whether a counter counts packets that ended, and which. Declared with the counter and stored as
/// one byte in the shared file: the numbers never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Class {
    /// No packet ends here. Gauges, texts and histograms too.
    #[default]
    Other = 0,
    /// Received packets that end here, for one named reason.
    RxDrop = 1,
    /// Packets that were not sent, for one named reason.
    TxDrop = 2,
}

impl Class {
    /// The class as JSON names it; `None` where no packet ends.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Other => None,
            Self::RxDrop => Some("rx_drop"),
            Self::TxDrop => Some("tx_drop"),
        }
    }

    /// Whether packets end here, received ones or ones to send.
    pub const fn is_drop(self) -> bool {
        matches!(self, Self::RxDrop | Self::TxDrop)
    }

    /// The class of a byte of a shared file, if it is valid.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Other, Self::RxDrop, Self::TxDrop].get(usize::from(byte)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_names_the_class_it_came_from() {
        for class in [Class::Other, Class::RxDrop, Class::TxDrop] {
            assert_eq!(Class::from_byte(class as u8), Some(class));
        }
        assert_eq!(Class::from_byte(3), None);
    }
}
