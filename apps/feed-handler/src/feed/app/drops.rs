//! Why a datagram is dropped.

use market::framing::FramingError;

wirepath::drop_reasons! {
    /// Why the feed handler drops a datagram.
    pub enum FeedDrop {
        /// Shorter than the framing's header.
        HeaderShort => "header_short",
        /// An unknown version of the framing.
        Version => "version",
        /// The header's length is not the datagram's.
        LengthMismatch => "length_mismatch",
        /// A message's length exceeds the datagram.
        MessageOverrun => "message_overrun",
        /// Bytes are left behind the last message.
        TrailingBytes => "trailing_bytes",
        /// A message that does not have the number behind the one before.
        MessageNumber => "message_number",
        /// The right framing with messages of another format.
        OtherFormat => "other_format",
        /// The packet has another VLAN than the line.
        OtherVlan => "other_vlan",
        /// A channel number that its set does not have.
        UnknownChannel => "unknown_channel",
        /// A channel beyond the [`CHANNELS_MAX`] that are learned.
        ChannelsFull => "channels_full",
        /// A channel beyond those that the machine had memory for at the start.
        NoMemory => "no_memory",
        /// A fifth group with the same session.
        LinesFull => "lines_full",
        /// The packet names a channel or a session that no second packet confirms.
        Doubtful => "doubtful",
        /// The packet has messages outside of its channel's numbers.
        Unsequenced => "unsequenced",
    }
}

impl From<FramingError> for FeedDrop {
    fn from(error: FramingError) -> Self {
        match error {
            FramingError::HeaderShort { .. } => Self::HeaderShort,
            FramingError::Version { .. } => Self::Version,
            FramingError::LengthMismatch { .. } => Self::LengthMismatch,
            FramingError::MessageOverrun { .. } => Self::MessageOverrun,
            FramingError::TrailingBytes { .. } => Self::TrailingBytes,
            FramingError::MessageNumber { .. } => Self::MessageNumber,
        }
    }
}
