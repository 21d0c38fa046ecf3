//! Requests to the kernel over netlink: one request, and one answer made of attributes or a list of
//! them (RFC 3549; linux/netlink.h). For set-up, for checks of the link at intervals, and for what
//! a broker asks about the kernel's sockets.

use std::io;
use std::os::fd::OwnedFd;

use arrayvec::ArrayVec;

use super::socket;

const MESSAGE_ERROR: u16 = 2;
const MESSAGE_DONE: u16 = 3;
const FLAG_REQUEST: u16 = 1;
const FLAGS_DUMP: u16 = 0x300;
/// Bytes of `struct nlmsghdr`, which precedes the protocol's message.
const HEADER_LEN: usize = 16;
/// Bytes of `struct nlattr`.
const ATTRIBUTE_LEN: usize = 4;
/// Header, fixed part and an attribute or two, of which an interface's name (16 bytes) is the
/// longest.
const REQUEST_LEN_MAX: usize = 128;
/// The two bits of an attribute's type that are flags.
const ATTRIBUTE_FLAGS: u16 = 0xc000;

/// A netlink socket of the network namespace in which it was opened.
pub(crate) struct Netlink {
    socket: OwnedFd,
    /// The last answer. The kernel itself uses 32 KiB for a link with all its attributes.
    buffer: Vec<u8>,
}

/// A request being built. It is not on the heap, because a running queue uses it to query its link.
pub(crate) struct Request {
    bytes: ArrayVec<u8, REQUEST_LEN_MAX>,
}

/// An answer: the protocol's fixed part and the attributes.
pub(crate) struct Answer<'a> {
    pub(crate) fixed: &'a [u8],
    attributes: &'a [u8],
}

impl Netlink {
    /// Opens a socket of `protocol`: `NETLINK_ROUTE`, `NETLINK_GENERIC`, `NETLINK_SOCK_DIAG`.
    pub(crate) fn open(protocol: i32) -> io::Result<Self> {
        let socket = socket::socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        Ok(Self { socket, buffer: vec![0; 32 << 10] })
    }

    /// Sends the request and waits for the answer, whose first `fixed_len` bytes have a fixed form.
    pub(crate) fn ask(&mut self, request: Request, fixed_len: usize) -> io::Result<Answer<'_>> {
        self.send(request)?;
        let received = socket::receive(&self.socket, &mut self.buffer)?;
        parse(&self.buffer[..received], fixed_len)
    }

    /// Sends a request for a list, and gives each entry to `each`. After an error the rest of the
    /// list may still come, so the socket is of no further use.
    pub(crate) fn dump(
        &mut self,
        mut request: Request,
        fixed_len: usize,
        mut each: impl FnMut(&Answer<'_>),
    ) -> io::Result<()> {
        request.bytes[6..8].copy_from_slice(&(FLAG_REQUEST | FLAGS_DUMP).to_ne_bytes());
        self.send(request)?;
        loop {
            let received = socket::receive(&self.socket, &mut self.buffer)?;
            if !entries(&self.buffer[..received], fixed_len, &mut each)? {
                return Ok(());
            }
        }
    }

    fn send(&self, mut request: Request) -> io::Result<()> {
        let len = (request.bytes.len() as u32).to_ne_bytes();
        request.bytes[..4].copy_from_slice(&len);
        socket::send(&self.socket, &request.bytes)
    }
}

/// Gives the entries of a list that a datagram has to `each`; returns whether more of them follow.
fn entries(mut rest: &[u8], fixed_len: usize, each: &mut impl FnMut(&Answer<'_>)) -> io::Result<bool> {
    while !rest.is_empty() {
        if u16_at(rest, 4) == Some(MESSAGE_DONE) {
            return Ok(false);
        }
        each(&parse(rest, fixed_len)?);
        let len = u32_at(rest, 0).unwrap_or(0) as usize;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(true)
}

fn parse(bytes: &[u8], fixed_len: usize) -> io::Result<Answer<'_>> {
    let cut = || io::Error::other("netlink answered with a message that is cut short");
    let message = bytes.get(..u32_at(bytes, 0).ok_or_else(cut)? as usize).ok_or_else(cut)?;
    let body = message.get(HEADER_LEN..).ok_or_else(cut)?;
    if u16_at(message, 4) == Some(MESSAGE_ERROR) {
        let errno = u32_at(body, 0).ok_or_else(cut)? as i32;
        return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
    }
    let (fixed, attributes) = body.split_at_checked(fixed_len).ok_or_else(cut)?;
    Ok(Answer { fixed, attributes })
}

impl Request {
    /// A request of a type, with the protocol's header before the attributes.
    pub(crate) fn new(kind: u16, fixed: &[u8]) -> Self {
        let mut header = [0; HEADER_LEN];
        header[4..6].copy_from_slice(&kind.to_ne_bytes());
        header[6..8].copy_from_slice(&FLAG_REQUEST.to_ne_bytes());
        let mut request = Self { bytes: ArrayVec::new() };
        request.extend(&header);
        request.extend(fixed);
        request
    }

    /// Adds an attribute.
    pub(crate) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        self.extend(&((ATTRIBUTE_LEN + value.len()) as u16).to_ne_bytes());
        self.extend(&kind.to_ne_bytes());
        self.extend(value);
        let padding = self.bytes.len().next_multiple_of(4) - self.bytes.len();
        self.extend(&[0; 4][..padding]);
        self
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes.try_extend_from_slice(bytes).expect("the longest request fits");
    }
}

impl<'a> Answer<'a> {
    #[cfg(test)]
    pub(crate) fn new(fixed: &'a [u8], attributes: &'a [u8]) -> Self {
        Self { fixed, attributes }
    }

    /// The value of an attribute; `None` if the answer does not have it.
    pub(crate) fn get(&self, wanted: u16) -> Option<&'a [u8]> {
        let mut rest = self.attributes;
        while let (Some(len), Some(kind)) = (u16_at(rest, 0), u16_at(rest, 2)) {
            let value = rest.get(ATTRIBUTE_LEN..len.into())?;
            if kind & !ATTRIBUTE_FLAGS == wanted {
                return Some(value);
            }
            rest = rest.get(usize::from(len).next_multiple_of(4)..).unwrap_or(&[]);
        }
        None
    }

    /// The attributes in an attribute.
    pub(crate) fn nested(&self, wanted: u16) -> Option<Self> {
        Some(Self { fixed: &[], attributes: self.get(wanted)? })
    }

    /// An attribute of four bytes, or the lower half of one of eight.
    pub(crate) fn get_u32(&self, wanted: u16) -> Option<u32> {
        let value = self.get(wanted)?;
        match value.len() {
            8 => Some(u64::from_ne_bytes(value.try_into().ok()?) as u32),
            _ => u32_at(value, 0),
        }
    }

    /// An attribute of two bytes.
    pub(crate) fn get_u16(&self, wanted: u16) -> Option<u16> {
        u16_at(self.get(wanted)?, 0)
    }

    /// An attribute that is a name, without the zero at its end.
    pub(crate) fn get_name(&self, wanted: u16) -> Option<String> {
        let name = self.get(wanted)?.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned())
    }
}

/// Four bytes at `at` in the machine's order.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message() -> Vec<u8> {
        let request = Request::new(16, &[7; 4]).with(3, b"veth0\0").with(4, &1500u32.to_ne_bytes());
        let mut bytes = request.bytes;
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes.to_vec()
    }

    #[test]
    fn attributes_are_found_by_their_type() {
        let bytes = message();
        let answer = parse(&bytes, 4).unwrap();
        assert_eq!((answer.fixed, answer.get_name(3).as_deref()), (&[7; 4][..], Some("veth0")));
        assert_eq!((answer.get_u32(4), answer.get_u32(5)), (Some(1500), None));
    }

    #[test]
    fn cut_answers_are_errors_or_lack_attributes() {
        let bytes = message();
        for len in 0..bytes.len() {
            assert!(parse(&bytes[..len], 4).is_err(), "{len} bytes");
        }
        for len in 20..bytes.len() {
            let mut bytes = bytes[..len].to_vec();
            bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
            assert_eq!(parse(&bytes, 4).unwrap().get_u32(4), None, "{len} bytes");
        }
    }

    #[test]
    fn list_goes_on_over_several_datagrams_until_its_end() {
        let mut seen = 0;
        let mut each = |answer: &Answer<'_>| seen += answer.get_u32(4).unwrap();
        let two = [message(), message()].concat();
        assert!(entries(&two, 4, &mut each).unwrap());
        let mut end = Request::new(MESSAGE_DONE, &[0; 4]).bytes;
        end[..4].copy_from_slice(&20u32.to_ne_bytes());
        assert!(!entries(&[&message()[..], &end].concat(), 4, &mut each).unwrap());
        assert_eq!(seen, 3 * 1500);
        assert!(entries(&two[..two.len() - 1], 4, &mut |_| ()).is_err());
    }

    #[test]
    fn attribute_of_no_length_ends_the_list() {
        let answer = Answer { fixed: &[], attributes: &[0; 16] };
        assert_eq!(answer.get(1), None);
    }

    #[test]
    fn error_of_the_kernel_comes_back_as_it_is() {
        let mut bytes = Request::new(MESSAGE_ERROR, &(-libc::ENODEV).to_ne_bytes()).bytes;
        bytes[..4].copy_from_slice(&20u32.to_ne_bytes());
        assert_eq!(parse(&bytes, 4).err().unwrap().raw_os_error(), Some(libc::ENODEV));
    }

    proptest! {
        #[test]
        fn no_answer_brings_it_down(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            len in any::<prop::sample::Index>(),
            wanted in 0..6_u16,
        ) {
            let mut bytes = message();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let bytes = &bytes[..len.index(bytes.len() + 1)];
            let _ = entries(bytes, 4, &mut |_| ());
            if let Ok(answer) = parse(bytes, 4) {
                prop_assert!(answer.get(wanted).is_none_or(|value| value.len() <= bytes.len()));
                let _ = (answer.get_u32(wanted), answer.get_u16(wanted), answer.get_name(wanted));
                let _ = answer.nested(wanted).and_then(|nested| nested.get_name(wanted));
            }
        }
    }
}
