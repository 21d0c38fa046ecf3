//! Priority flow control of an interface (IEEE 802.1Qbb), asked of the kernel by `RTM_GETDCB`
//! (linux/dcbnl.h).

use std::fmt;
use std::io;

use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

// linux/netlink.h, linux/rtnetlink.h, linux/dcbnl.h
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const RTM_GETDCB: u16 = 78;
const DCB_CMD_IEEE_GET: u8 = 21;
const DCB_ATTR_IFNAME: u16 = 1;
const DCB_ATTR_IEEE: u16 = 13;
const DCB_ATTR_IEEE_PFC: u16 = 2;
/// The two highest bits of a type say how it is encoded.
const TYPE_MASK: u16 = 0x3fff;
const MESSAGE_HEADER_LEN: usize = 16;
/// Family, command and two bytes of nothing.
const DCB_HEADER_LEN: usize = 4;
const ATTRIBUTE_HEADER_LEN: usize = 4;
/// Where `struct ieee_pfc` has its two arrays of eight counters.
const REQUESTS_AT: usize = 8;
const PRIORITIES: usize = 8;

/// The settings, and what was paused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pfc {
    /// A bit for each priority that can be paused.
    pub(crate) priorities: u8,
    /// Pause frames that were sent, of all priorities.
    pub(crate) sent: u64,
    /// Pause frames that came.
    pub(crate) received: u64,
}

/// Asks for the settings of `interface` in this network namespace.
///
/// # Errors
/// `EOPNOTSUPP` where the driver has none.
pub(crate) fn pfc(interface: &str) -> io::Result<Pfc> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.send_to(&request(interface), &SocketAddr::new(0, 0), 0)?;
    // The kernel answers within the call above, so this does not wait.
    let mut answer = Vec::with_capacity(4096);
    socket.recv_from(&mut answer, 0)?;
    parse(&answer)
}

/// Why the kernel does not say, in words.
pub(crate) fn why(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "none: the driver has no data center bridging".to_owned(),
        _ => format!("the kernel does not say: {error}"),
    }
}

fn request(interface: &str) -> Vec<u8> {
    let name_len = ATTRIBUTE_HEADER_LEN + interface.len() + 1;
    let len = MESSAGE_HEADER_LEN + DCB_HEADER_LEN + name_len.next_multiple_of(4);
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(RTM_GETDCB.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([0, DCB_CMD_IEEE_GET, 0, 0]);
    bytes.extend((name_len as u16).to_ne_bytes());
    bytes.extend(DCB_ATTR_IFNAME.to_ne_bytes());
    bytes.extend(interface.as_bytes());
    bytes.resize(len, 0);
    bytes
}

fn parse(answer: &[u8]) -> io::Result<Pfc> {
    let other = || io::Error::other("it answered something else");
    let (header, body) = answer.split_at_checked(MESSAGE_HEADER_LEN).ok_or_else(other)?;
    if u16::from_ne_bytes([header[4], header[5]]) == NLMSG_ERROR {
        let (code, _) = body.split_first_chunk().ok_or_else(other)?;
        return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(*code).saturating_neg()));
    }
    let attributes = body.get(DCB_HEADER_LEN..).ok_or_else(other)?;
    let pfc = find(attributes, DCB_ATTR_IEEE).and_then(|ieee| find(ieee, DCB_ATTR_IEEE_PFC));
    pfc.and_then(read).ok_or_else(|| io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

/// The content of the attribute of this type.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (header, _) = attributes.split_first_chunk::<ATTRIBUTE_HEADER_LEN>()?;
        let (len, kind) = (u16::from_ne_bytes([header[0], header[1]]), u16::from_ne_bytes([header[2], header[3]]));
        let content = attributes.get(ATTRIBUTE_HEADER_LEN..len.into())?;
        if kind & TYPE_MASK == wanted {
            return Some(content);
        }
        attributes = attributes.get(usize::from(len).next_multiple_of(4)..)?;
    }
}

fn read(pfc: &[u8]) -> Option<Pfc> {
    let counters = pfc.get(REQUESTS_AT..)?.as_chunks::<8>().0;
    let sum =
        |counters: &[[u8; 8]]| counters.iter().fold(0, |sum: u64, one| sum.wrapping_add(u64::from_ne_bytes(*one)));
    let (sent, received) = (counters.get(..PRIORITIES)?, counters.get(PRIORITIES..2 * PRIORITIES)?);
    Some(Pfc { priorities: pfc[1], sent: sum(sent), received: sum(received) })
}

impl fmt::Display for Pfc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on: Vec<String> = (0..8).filter(|bit| self.priorities >> bit & 1 == 1).map(|bit| bit.to_string()).collect();
        match &on[..] {
            [] => f.write_str("off on all priorities")?,
            [one] => write!(f, "on priority {one}")?,
            several => write!(f, "on priorities {}", several.join(", "))?,
        }
        write!(f, ", {} pauses sent, {} received", self.sent, self.received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, content: &[u8]) -> Vec<u8> {
        let len = (ATTRIBUTE_HEADER_LEN + content.len()) as u16;
        let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), content].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn answer(kind: u16, body: &[u8]) -> Vec<u8> {
        [&[0; 4][..], &kind.to_ne_bytes(), &[0; 10], body].concat()
    }

    #[test]
    fn settings_are_found_in_their_nest() {
        let mut pfc = vec![8, 1 << 3 | 1 << 4, 0, 0, 0, 0, 0, 0];
        (1..=16_u64).for_each(|count| pfc.extend(count.to_ne_bytes()));
        let ieee = [attribute(1, &[9; 5]), attribute(DCB_ATTR_IEEE_PFC, &pfc)].concat();
        let body =
            [vec![0; 4], attribute(DCB_ATTR_IFNAME, b"eth1\0"), attribute(DCB_ATTR_IEEE | 1 << 15, &ieee)].concat();
        let found = parse(&answer(RTM_GETDCB, &body)).unwrap();
        assert_eq!(found, Pfc { priorities: 0x18, sent: 36, received: 100 });
        assert_eq!(found.to_string(), "on priorities 3, 4, 36 pauses sent, 100 received");
    }

    #[test]
    fn any_cut_answer_is_an_error() {
        let ieee = attribute(DCB_ATTR_IEEE_PFC, &[0; 100]);
        let whole = answer(RTM_GETDCB, &[vec![0; 4], attribute(DCB_ATTR_IEEE, &ieee)].concat());
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len} bytes of {}", whole.len());
        }
        assert!(parse(&whole).is_err(), "100 bytes hold no two arrays");
    }

    #[test]
    fn driver_without_it_is_said() {
        let refused = answer(NLMSG_ERROR, &(-libc::EOPNOTSUPP).to_ne_bytes());
        assert!(why(&parse(&refused).unwrap_err()).starts_with("none: the driver"));
        // The loopback has no driver.
        assert!(pfc("lo").is_err());
    }
}
