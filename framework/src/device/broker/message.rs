//! What a program and its broker say to each other: a request and its reply, each one message of a
//! seqpacket socket. A message is a byte for its kind and then its fields, little endian, in fixed
//! places; a flag or a kind that is unknown, and a message that is too short or too long, is none.

use core::net::{Ipv4Addr, SocketAddrV4};

use super::nic::{NicFeatures, NicQueue};
use crate::device::steering::Rule;
use crate::wire::{EtherType, Protocol};

/// Both ends are of the same release: a message means the same in both.
pub(crate) const VERSION: u16 = 11;
/// No message is longer.
pub(crate) const MESSAGE_LEN_MAX: usize = 512;
/// Bytes of the sentence of a refusal.
const SENTENCE_LEN_MAX: usize = 400;

/// A flow that a client may ask for. Rules have more fields; those would take frames that are
/// nobody's, or everybody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    /// UDP or TCP.
    pub(crate) protocol: Protocol,
    /// An address of the interface or a group, and a port.
    pub(crate) destination: SocketAddrV4,
    pub(crate) source: Option<Ipv4Addr>,
    pub(crate) source_port: Option<u16>,
    pub(crate) vlan: Option<u16>,
}

/// A request of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The first: which release it is of.
    Hello {
        version: u16,
    },
    /// A queue with a umem of so many bytes; where the NIC steers, with packet buffers that hold
    /// `chunk_len` bytes each, which the client has at `address`.
    Open {
        umem_len: u64,
        chunk_len: u32,
        rx_ring_len: u32,
        tx_ring_len: u32,
        address: u64,
    },
    /// The frames of its flows come to it from now on.
    Connect,
    /// They are the kernel's again.
    Disconnect,
    /// A flow.
    Steer(Flow),
    /// The flow with this number is the kernel's again.
    Unsteer {
        id: u32,
    },
    /// The kernel is to resolve a neighbor.
    Resolve(Ipv4Addr),
    /// Whether connections that begin may come by the flow with this number. Those that the client
    /// has keep it.
    SetListening {
        id: u32,
        listening: bool,
    },
    /// The broker is to serve this user as well; of root alone.
    Serve {
        uid: u32,
    },
    /// The completion queue of the client's NIC queue is to signal: the word for its register. This
    /// has no reply.
    Arm {
        word: u32,
    },
    /// The NIC is to release a ring, because of an error or at the end; and to use it again.
    Reset {
        half: Half,
    },
    Ready {
        half: Half,
    },
    /// The program has the kernel's socket that goes with the message as a descriptor, and that
    /// another user has made: a flow at its port may be for it.
    Claim {
        protocol: Protocol,
        port: u16,
    },
}

/// A half of a NIC's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    Rx,
    Tx,
}

/// A reply of the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// To [`Request::Hello`]: the interface. With a descriptor: a socket that brings ICMP errors.
    Welcome(Welcome),
    /// To [`Request::Open`]. With two descriptors: the bound socket, and the memory of its umem.
    /// Where the broker passes frames on, with three: its socket, the memory, and the rings.
    Opened { umem_len: u64, zero_copy: bool, multi_buffer: bool, forwarded: bool },
    /// To [`Request::Open`] where the NIC steers. With three descriptors: the memory of packet
    /// buffers and rings, the device's file, and a socket that wakes.
    OpenedNic(NicQueue),
    /// To [`Request::Steer`].
    Steered { id: u32 },
    /// Done.
    Done,
    /// Not done: the system's error number, and a sentence with the way on.
    Refused { errno: i32, sentence: String },
    /// To no request, and on the socket that brings ICMP errors: there it comes between no request
    /// and its reply, and it wakes a program that sleeps. The broker has taken back the flow with
    /// this number, for the reason that a request for it would be refused with now. It begins with
    /// another byte than an IPv4 packet.
    Lost { id: u32, errno: i32 },
}

/// The interface of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub(crate) interface_idx: u32,
    /// The program runs in the driver.
    pub(crate) native: bool,
    /// Frames may carry metadata.
    pub(crate) has_rx_hints: bool,
    /// The broker keeps the queues and passes frames on.
    pub(crate) forwards: bool,
    /// The NIC brings the frames of a rule to the queue that has it, or there is one queue.
    pub(crate) steers: bool,
    /// It lends queues of a ConnectX.
    pub(crate) nic: Option<NicFeatures>,
}

impl Flow {
    /// The flow of a rule; `None` where the rule is none that a broker installs.
    pub(crate) fn of(rule: &Rule) -> Option<Self> {
        let protocol = rule.protocol.filter(|protocol| is_protocol(*protocol))?;
        let destination = SocketAddrV4::new(rule.destination?, rule.destination_port?);
        let flow = Self { protocol, destination, source: rule.source, source_port: rule.source_port, vlan: rule.vlan };
        (flow.rule() == *rule).then_some(flow)
    }

    /// The rule of a flow.
    pub(crate) fn rule(&self) -> Rule {
        Rule {
            vlan: self.vlan,
            ethertype: Some(EtherType::IPV4),
            source: self.source,
            destination: Some(*self.destination.ip()),
            protocol: Some(self.protocol),
            source_port: self.source_port,
            destination_port: Some(self.destination.port()),
            ..Rule::ALL
        }
    }
}

fn is_protocol(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::UDP | Protocol::TCP)
}

impl Request {
    /// The bytes of a request.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        match *self {
            Self::Hello { version } => {
                bytes.push(1);
                bytes.extend(version.to_le_bytes());
            }
            Self::Open { umem_len, chunk_len, rx_ring_len, tx_ring_len, address } => {
                bytes.push(2);
                bytes.extend(umem_len.to_le_bytes());
                [chunk_len, rx_ring_len, tx_ring_len].iter().for_each(|len| bytes.extend(len.to_le_bytes()));
                bytes.extend(address.to_le_bytes());
            }
            Self::Connect => bytes.push(3),
            Self::Disconnect => bytes.push(4),
            Self::Steer(flow) => {
                bytes.push(5);
                put_flow(&mut bytes, &flow);
            }
            Self::Unsteer { id } => {
                bytes.push(6);
                bytes.extend(id.to_le_bytes());
            }
            Self::Resolve(address) => {
                bytes.push(7);
                bytes.extend(address.octets());
            }
            Self::SetListening { id, listening } => {
                bytes.push(8);
                bytes.extend(id.to_le_bytes());
                bytes.push(u8::from(listening));
            }
            Self::Serve { uid } => {
                bytes.push(9);
                bytes.extend(uid.to_le_bytes());
            }
            Self::Arm { word } => {
                bytes.push(10);
                bytes.extend(word.to_le_bytes());
            }
            Self::Reset { half } => bytes.extend([11, half as u8]),
            Self::Ready { half } => bytes.extend([12, half as u8]),
            Self::Claim { protocol, port } => {
                bytes.extend([13, protocol.0]);
                bytes.extend(port.to_le_bytes());
            }
        }
        bytes
    }

    /// The request of these bytes; `None` for any others.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let request = match fields.u8()? {
            1 => Self::Hello { version: fields.u16()? },
            2 => Self::Open {
                umem_len: fields.u64()?,
                chunk_len: fields.u32()?,
                rx_ring_len: fields.u32()?,
                tx_ring_len: fields.u32()?,
                address: fields.u64()?,
            },
            3 => Self::Connect,
            4 => Self::Disconnect,
            5 => Self::Steer(fields.flow()?),
            6 => Self::Unsteer { id: fields.u32()? },
            7 => Self::Resolve(fields.address()?),
            8 => Self::SetListening { id: fields.u32()?, listening: fields.bool()? },
            9 => Self::Serve { uid: fields.u32()? },
            10 => Self::Arm { word: fields.u32()? },
            11 => Self::Reset { half: fields.half()? },
            12 => Self::Ready { half: fields.half()? },
            13 => Self::Claim { protocol: fields.protocol()?, port: fields.u16().filter(|port| *port != 0)? },
            _ => return None,
        };
        fields.is_over().then_some(request)
    }
}

impl Reply {
    /// The bytes of a reply. A sentence that is too long is cut.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        match self {
            Self::Welcome(Welcome { interface_idx, native, has_rx_hints, forwards, steers, nic }) => {
                bytes.push(1);
                bytes.extend(interface_idx.to_le_bytes());
                bytes.extend([*native, *has_rx_hints, *forwards, *steers, nic.is_some()].map(u8::from));
                bytes.extend(nic.iter().flat_map(|nic| nic.words()).flat_map(u32::to_le_bytes));
            }
            Self::OpenedNic(queue) => {
                bytes.push(7);
                bytes.extend(queue.words().into_iter().flat_map(u32::to_le_bytes));
            }
            Self::Opened { umem_len, zero_copy, multi_buffer, forwarded } => {
                bytes.push(2);
                bytes.extend(umem_len.to_le_bytes());
                bytes.extend([*zero_copy, *multi_buffer, *forwarded].map(u8::from));
            }
            Self::Steered { id } => {
                bytes.push(3);
                bytes.extend(id.to_le_bytes());
            }
            Self::Done => bytes.push(4),
            Self::Refused { errno, sentence } => {
                bytes.push(5);
                bytes.extend(errno.to_le_bytes());
                let cut = sentence.floor_char_boundary(SENTENCE_LEN_MAX);
                bytes.extend(&sentence.as_bytes()[..cut]);
            }
            Self::Lost { id, errno } => {
                bytes.push(6);
                bytes.extend(id.to_le_bytes());
                bytes.extend(errno.to_le_bytes());
            }
        }
        bytes
    }

    /// The reply of these bytes; `None` for any others.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let reply = match fields.u8()? {
            1 => Self::Welcome(Welcome {
                interface_idx: fields.u32()?,
                native: fields.bool()?,
                has_rx_hints: fields.bool()?,
                forwards: fields.bool()?,
                steers: fields.bool()?,
                nic: match fields.bool()? {
                    true => Some(NicFeatures::of(fields.words()?)),
                    false => None,
                },
            }),
            2 => Self::Opened {
                umem_len: fields.u64()?,
                zero_copy: fields.bool()?,
                multi_buffer: fields.bool()?,
                forwarded: fields.bool()?,
            },
            3 => Self::Steered { id: fields.u32()? },
            4 => Self::Done,
            5 => Self::Refused { errno: fields.u32()?.cast_signed(), sentence: fields.sentence()? },
            6 => Self::Lost { id: fields.u32()?, errno: fields.u32()?.cast_signed() },
            7 => Self::OpenedNic(NicQueue::of(fields.words()?)),
            _ => return None,
        };
        fields.is_over().then_some(reply)
    }
}

/// The bits of a flow's optional fields.
const HAS_SOURCE: u8 = 1;
const HAS_SOURCE_PORT: u8 = 2;
const HAS_VLAN: u8 = 4;

/// A field that is not named is zero, so that a flow has one form.
fn put_flow(bytes: &mut Vec<u8>, flow: &Flow) {
    let mut named = 0;
    for (bit, is_named) in [
        (HAS_SOURCE, flow.source.is_some()),
        (HAS_SOURCE_PORT, flow.source_port.is_some()),
        (HAS_VLAN, flow.vlan.is_some()),
    ] {
        named |= if is_named { bit } else { 0 };
    }
    bytes.extend([flow.protocol.0, named]);
    bytes.extend(flow.destination.ip().octets());
    bytes.extend(flow.destination.port().to_le_bytes());
    bytes.extend(flow.source.unwrap_or(Ipv4Addr::UNSPECIFIED).octets());
    bytes.extend(flow.source_port.unwrap_or(0).to_le_bytes());
    bytes.extend(flow.vlan.unwrap_or(0).to_le_bytes());
}

/// The bytes of a message that were not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn bool(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn half(&mut self) -> Option<Half> {
        self.bool().map(|sends| if sends { Half::Tx } else { Half::Rx })
    }

    fn words<const N: usize>(&mut self) -> Option<[u32; N]> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.u32()?;
        }
        Some(words)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn address(&mut self) -> Option<Ipv4Addr> {
        self.take::<4>().map(Ipv4Addr::from)
    }

    fn protocol(&mut self) -> Option<Protocol> {
        self.u8().map(Protocol).filter(|protocol| is_protocol(*protocol))
    }

    fn flow(&mut self) -> Option<Flow> {
        let protocol = self.protocol()?;
        let named = self.u8()?;
        let destination = SocketAddrV4::new(self.address()?, self.u16()?);
        let flow = Flow {
            protocol,
            destination,
            source: optional(named & HAS_SOURCE, self.address()?, Ipv4Addr::UNSPECIFIED)?,
            source_port: optional(named & HAS_SOURCE_PORT, self.u16()?, 0)?,
            vlan: optional(named & HAS_VLAN, self.u16()?, 0)?,
        };
        let is_known = named & !(HAS_SOURCE | HAS_SOURCE_PORT | HAS_VLAN) == 0;
        (is_known && flow.rule().check().is_ok()).then_some(flow)
    }

    fn sentence(&mut self) -> Option<String> {
        let bytes = core::mem::take(&mut self.0);
        let is_fit = bytes.len() <= SENTENCE_LEN_MAX;
        is_fit.then(|| core::str::from_utf8(bytes).ok().map(str::to_owned)).flatten()
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// A field that is named, or absent and then zero.
fn optional<T: PartialEq>(is_named: u8, value: T, zero: T) -> Option<Option<T>> {
    match is_named {
        0 => (value == zero).then_some(None),
        _ => Some(Some(value)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LOCAL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 5000);

    fn flow() -> Flow {
        Flow {
            protocol: Protocol::TCP,
            destination: LOCAL,
            source: Some(Ipv4Addr::new(192, 0, 2, 9)),
            source_port: Some(443),
            vlan: None,
        }
    }

    fn requests() -> Vec<Request> {
        vec![
            Request::Hello { version: VERSION },
            Request::Open { umem_len: 1 << 40, chunk_len: 2048, rx_ring_len: 64, tx_ring_len: 128, address: 0 },
            Request::Connect,
            Request::Disconnect,
            Request::Steer(flow()),
            Request::Steer(Flow { source: None, source_port: None, vlan: Some(4095), ..flow() }),
            Request::Unsteer { id: u32::MAX },
            Request::Resolve(Ipv4Addr::new(192, 0, 2, 7)),
            Request::SetListening { id: 7, listening: true },
            Request::Serve { uid: 1000 },
            Request::Arm { word: 0x3000_0001 },
            Request::Reset { half: Half::Rx },
            Request::Ready { half: Half::Tx },
            Request::Claim { protocol: Protocol::UDP, port: 53 },
        ]
    }

    fn replies() -> Vec<Reply> {
        let nic = NicFeatures::of(core::array::from_fn(|idx| idx as u32 + 1));
        let welcome = |nic| {
            Reply::Welcome(Welcome {
                interface_idx: 7,
                native: true,
                has_rx_hints: false,
                forwards: true,
                steers: false,
                nic,
            })
        };
        vec![
            welcome(None),
            welcome(Some(nic)),
            Reply::OpenedNic(NicQueue::of(core::array::from_fn(|idx| u32::MAX - idx as u32))),
            Reply::Opened { umem_len: 4096, zero_copy: false, multi_buffer: true, forwarded: false },
            Reply::Steered { id: 9 },
            Reply::Done,
            Reply::Refused { errno: libc::EACCES, sentence: "no: ask another".into() },
            Reply::Lost { id: u32::MAX, errno: libc::EADDRINUSE },
        ]
    }

    #[test]
    fn each_message_is_what_it_was() {
        for request in requests() {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        for reply in replies() {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
    }

    #[test]
    fn message_that_is_cut_or_goes_on_is_none() {
        for bytes in requests().iter().map(Request::encode) {
            (0..bytes.len()).for_each(|len| assert_eq!(Request::decode(&bytes[..len]), None, "{bytes:?} {len}"));
            assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None, "{bytes:?}");
            assert!(bytes.len() <= MESSAGE_LEN_MAX);
        }
        for bytes in replies()[..6].iter().map(Reply::encode) {
            (0..bytes.len()).for_each(|len| assert_eq!(Reply::decode(&bytes[..len]), None, "{bytes:?} {len}"));
            assert_eq!(Reply::decode(&[&bytes[..], &[0]].concat()), None, "{bytes:?}");
        }
    }

    #[test]
    fn flow_of_another_protocol_or_with_a_stray_field_is_none() {
        let sound = Request::Steer(flow()).encode();
        let check = |place: usize, value: u8| {
            let mut wrong = sound.clone();
            wrong[place] = value;
            assert_eq!(Request::decode(&wrong), None, "byte {place} is {value}");
        };
        check(1, Protocol::ICMP.0);
        check(1, 0);
        check(2, 8 | HAS_SOURCE | HAS_SOURCE_PORT);
        check(2, HAS_SOURCE);
        let (_, vlan) = (check(2, HAS_SOURCE_PORT), sound.len() - 1);
        check(vlan, 1);
        let wide = Request::Steer(Flow { vlan: Some(4096), ..flow() });
        assert_eq!(Request::decode(&wide.encode()), None);
    }

    #[test]
    fn claim_of_no_port_or_of_another_protocol_is_none() {
        for (protocol, port) in [(Protocol::TCP, 0), (Protocol::ICMP, 7)] {
            assert_eq!(Request::decode(&Request::Claim { protocol, port }.encode()), None, "{protocol:?} {port}");
        }
    }

    #[test]
    fn sentence_of_a_refusal_is_cut_between_letters_and_a_longer_one_is_none() {
        let long = Reply::Refused { errno: 1, sentence: "ä".repeat(MESSAGE_LEN_MAX) };
        assert!(long.encode().len() <= MESSAGE_LEN_MAX);
        let Some(Reply::Refused { sentence, .. }) = Reply::decode(&long.encode()) else { panic!("no refusal") };
        assert_eq!(sentence.len(), SENTENCE_LEN_MAX);
        assert_eq!(Reply::decode(&[&long.encode()[..], b"x"].concat()), None);
        assert_eq!(Reply::decode(&[5, 0, 0, 0, 0, 0xff]), None, "no UTF-8");
    }

    #[test]
    fn only_rules_of_a_flow_are_flows() {
        assert_eq!(Flow::of(&flow().rule()), Some(flow()));
        let udp = Rule::udp(*LOCAL.ip(), 9000);
        assert!(Flow::of(&udp).is_some());
        for rule in [
            Rule::ALL,
            Rule::arp(),
            Rule::igmp(),
            Rule { destination_port: None, ..udp },
            Rule { destination: None, ..udp },
            udp.tagged(1),
            Rule { destination_mac: Some(crate::wire::MacAddr([2, 0, 0, 0, 0, 1])), ..udp },
        ] {
            assert_eq!(Flow::of(&rule), None, "{rule}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_one_message_or_none(kind in 0u8..15, rest in prop::collection::vec(any::<u8>(), 0..120)) {
            let bytes = [&[kind], &rest[..]].concat();
            if let Some(request) = Request::decode(&bytes) {
                prop_assert_eq!(request.encode(), bytes.clone());
            }
            if let Some(reply) = Reply::decode(&bytes) {
                prop_assert_eq!(reply.encode(), bytes);
            }
        }
    }
}
