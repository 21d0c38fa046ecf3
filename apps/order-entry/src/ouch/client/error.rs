//! Why a session of OUCH ended.

use core::fmt;

use crate::ouch::OuchError;
use crate::soupbin::{LoginRejectReason, SoupError};

/// The rule that the venue broke, or why it refused us. The text is safe for a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OuchClientError {
    /// SoupBinTCP.
    Soup(SoupError),
    /// A message is none of the version.
    Ouch(OuchError),
    /// The login was refused.
    LoginRejected(LoginRejectReason),
    /// The probe of a session of OUCH 4.2 has no answer, and neither had the one before.
    ProbeTimeout,
    /// A price that no order can have.
    PriceRange {
        /// The price on the wire.
        price: u64,
    },
}

impl From<SoupError> for OuchClientError {
    fn from(error: SoupError) -> Self {
        Self::Soup(error)
    }
}

impl From<OuchError> for OuchClientError {
    fn from(error: OuchError) -> Self {
        Self::Ouch(error)
    }
}

impl fmt::Display for OuchClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Soup(error) => error.fmt(f),
            Self::Ouch(error) => error.fmt(f),
            Self::LoginRejected(reason) => write!(f, "the venue refused the login: {reason:?}"),
            Self::ProbeTimeout => f.write_str("the venue does not answer an order that it must refuse"),
            Self::PriceRange { price } => write!(f, "a price has at most 63 bits, {price} has more"),
        }
    }
}

impl core::error::Error for OuchClientError {}
