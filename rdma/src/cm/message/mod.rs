//! The messages of connections (InfiniBand 12.6 to 12.11): views of the 256 bytes of a datagram.

mod ending;
mod reject;
mod reply;
mod request;
mod sidr;

pub use ending::{Drep, Dreq, Mra, Rtu};
pub use reject::{REJ_DATA_LEN, Rej, RejFields};
pub use reply::{REP_DATA_LEN, Rep, RepFields};
pub use request::{REQ_DATA_LEN, Req, ReqFields};
pub use sidr::{SIDR_REP_DATA_LEN, SIDR_REQ_DATA_LEN, SidrRep, SidrReq};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::mad::{MAD_LEN, MadError, MadHeader};

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Asks for a connection.
    Req(&'a Req),
    /// A message arrived, and its answer takes longer.
    Mra(&'a Mra),
    /// Refuses a connection.
    Rej(&'a Rej),
    /// Grants a connection.
    Rep(&'a Rep),
    /// The connection can be used.
    Rtu(&'a Rtu),
    /// Ends a connection.
    Dreq(&'a Dreq),
    /// The connection has ended.
    Drep(&'a Drep),
    /// Asks for the queue pair that takes a service's datagrams.
    SidrReq(&'a SidrReq),
    /// Names it, or refuses.
    SidrRep(&'a SidrRep),
}

/// A message that another one is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum About {
    /// REQ.
    Req = 0,
    /// REP.
    Rep = 1,
    /// No message, or one of a path that is loaded later.
    Other = 2,
}

impl About {
    pub(super) const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            _ => Self::Other,
        }
    }
}

impl<'a> Message<'a> {
    /// The message in a management datagram.
    ///
    /// # Errors
    /// [`MadError`]; nothing of it can be used then.
    pub fn parse(mad: &'a [u8]) -> Result<Self, MadError> {
        let mad: &[u8; MAD_LEN] = mad.try_into().map_err(|_| MadError::Length)?;
        let (header, _) = MadHeader::ref_from_prefix(mad).map_err(|_| MadError::Length)?;
        header.check()?;
        Ok(match header.attribute() {
            Req::ATTRIBUTE => Self::Req(view(mad)?),
            Mra::ATTRIBUTE => Self::Mra(view(mad)?),
            Rej::ATTRIBUTE => Self::Rej(view(mad)?),
            Rep::ATTRIBUTE => Self::Rep(view(mad)?),
            Rtu::ATTRIBUTE => Self::Rtu(view(mad)?),
            Dreq::ATTRIBUTE => Self::Dreq(view(mad)?),
            Drep::ATTRIBUTE => Self::Drep(view(mad)?),
            SidrReq::ATTRIBUTE => Self::SidrReq(view(mad)?),
            SidrRep::ATTRIBUTE => Self::SidrRep(view(mad)?),
            other => return Err(MadError::Attribute(other)),
        })
    }
}

fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(mad: &[u8; MAD_LEN]) -> Result<&T, MadError> {
    T::ref_from_bytes(mad).map_err(|_| MadError::Length)
}

/// The datagram that a message is.
pub(crate) fn emit(message: &(impl IntoBytes + Immutable)) -> [u8; MAD_LEN] {
    let mut mad = [0; MAD_LEN];
    mad.copy_from_slice(message.as_bytes());
    mad
}

/// The beginning of a message's private data; what is longer is cut, which callers have refused.
fn padded<const N: usize>(data: &[u8]) -> [u8; N] {
    let mut padded = [0; N];
    let len = data.len().min(N);
    padded[..len].copy_from_slice(&data[..len]);
    padded
}

// Each view is the whole datagram.
const _: () = assert!(size_of::<Req>() == MAD_LEN && size_of::<Rep>() == MAD_LEN && size_of::<Rej>() == MAD_LEN);
const _: () = assert!(size_of::<Mra>() == MAD_LEN && size_of::<Rtu>() == MAD_LEN && size_of::<Dreq>() == MAD_LEN);
const _: () = assert!(size_of::<Drep>() == MAD_LEN && size_of::<SidrReq>() == MAD_LEN);
const _: () = assert!(size_of::<SidrRep>() == MAD_LEN);
