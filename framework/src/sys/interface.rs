//! ioctl(2) about an interface: its name and flags, its driver's report (`ethtool`), and which
//! frames its NIC stamps.
//!
//! `unsafe`, because ioctl(2) takes addresses, and because how many bytes the kernel writes depends
//! on the command.
//!
//! Invariants:
//! 1. The request, and the words or the structure that it points to, are borrowed mutably until the
//!    call has returned; the kernel writes only plain data.
//! 2. A request is as long as `struct ifreq`, and ends its name with a zero.
//! 3. The words have room for all that the kernel writes. Of the commands here, those with a fixed
//!    answer write at most 49 words (`struct ethtool_drvinfo`, the longest of them in
//!    linux/ethtool.h) into [`FIXED_WORDS`]. GFEATURES writes no more blocks than it is asked for,
//!    and GRXCLSRLALL no more locations: the driver fails with EMSGSIZE where it has more.
//!    GSTRINGS and GSTATS write as many items as the driver has at that moment, whatever number was
//!    requested (until Linux 6.18). We request the number that the driver stated just before, and
//!    have room for four times as many and [`SPARE_ITEMS`], more than a change of the NIC's queues
//!    in between can add. `struct hwtstamp_config` is three words.

use core::net::Ipv4Addr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use arrayvec::ArrayVec;
use zerocopy::IntoBytes;

use super::socket::{check, socket};

/// linux/sockios.h
const SIOCGIFNAME: libc::Ioctl = 0x8910;
const SIOCGIFFLAGS: libc::Ioctl = 0x8913;
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const SIOCSHWTSTAMP: libc::Ioctl = 0x89b0;
const SIOCGHWTSTAMP: libc::Ioctl = 0x89b1;

/// linux/ethtool.h
const GDRVINFO: u32 = 0x03;
const GCOALESCE: u32 = 0x0e;
const GRINGPARAM: u32 = 0x10;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GFLAGS: u32 = 0x25;
const GSSET_INFO: u32 = 0x37;
const GFEATURES: u32 = 0x3a;
const GRXCLSRLCNT: u32 = 0x2e;
const GRXCLSRULE: u32 = 0x2f;
const GRXCLSRLALL: u32 = 0x30;
const SRXCLSRLDEL: u32 = 0x31;
const SRXCLSRLINS: u32 = 0x32;
const GCHANNELS: u32 = 0x3c;
const GET_TS_INFO: u32 = 0x41;
const STRING_WORDS: usize = 8;
const STAT_WORDS: usize = 2;
const FEATURE_WORDS: usize = 4;

/// `struct ethtool_rxnfc`, in words: what a count says of the table; the flow's type, the fields of
/// its `struct ethtool_rx_flow_spec` and their masks; the queue, the location; the count.
const RULE_DATA: usize = 2;
const RULE_FLOW: usize = 4;
const RULE_FIELDS: usize = 5;
const RULE_EXTENSION: usize = 18;
const RULE_MASKS: usize = 23;
const RULE_MASK_EXTENSION: usize = 36;
const RULE_QUEUE: usize = 42;
const RULE_LOCATION: usize = 44;
const RULE_COUNT: usize = 46;
const RULE_LOCATIONS: usize = 47;
const FLOW_TCP: u32 = 0x01;
const FLOW_UDP: u32 = 0x02;
const FLOW_EXTENDED: u32 = 0x8000_0000;
const FLOW_MAC_EXTENDED: u32 = 0x4000_0000;
/// The queue is the first of an RSS context.
const FLOW_RSS: u32 = 0x2000_0000;
const LOCATION_ANY: u32 = 0xffff_ffff;
const LOCATION_SPECIAL: u32 = 0x8000_0000;
/// Places of a table that are looked at.
const PLACES_MAX: u32 = 1 << 16;

/// Words of a fixed answer.
const FIXED_WORDS: usize = 64;
/// Items of room beyond four times a list's length.
const SPARE_ITEMS: usize = 16_384;
/// A driver that states more items is refused: a large NIC has some ten thousand.
const ITEMS_MAX: usize = 1 << 20;

/// `struct ifreq` with an address in it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    data: *mut u32,
    rest: [u64; 2],
}

/// Sets of names.
#[derive(Clone, Copy)]
enum StringSet {
    Counters = 1,
    Features = 4,
}

/// A rule of a NIC for its queues, as `ethtool -N` takes it: frames of UDP or TCP over IPv4 whose
/// named fields are these go to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowRule {
    pub(crate) is_tcp: bool,
    pub(crate) source: Option<Ipv4Addr>,
    pub(crate) destination: Option<Ipv4Addr>,
    pub(crate) source_port: Option<u16>,
    pub(crate) destination_port: Option<u16>,
    pub(crate) vlan: Option<u16>,
    pub(crate) queue: u16,
}

/// What a NIC does with the frames of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowAction {
    /// They go to this queue.
    Queue(u16),
    /// They are dropped, or go to a virtual function or to queues of an RSS context.
    Other,
}

/// Which frames the NIC stamps: `struct hwtstamp_config`, flags, departures, arrivals.
pub(crate) type StampFilter = [u32; 3];

/// The bytes of an interface's name, on the stack because a running queue requests it.
pub(crate) type InterfaceName = ArrayVec<u8, { libc::IFNAMSIZ }>;

/// What the driver of an interface reports about itself, as `ethtool` prints it, in the words of
/// the kernel's structures; word 0 of each is the command. Each query is one system call or a few,
/// so it is for set-up and for tools. A driver need not support a query: EOPNOTSUPP is common, and
/// not a fault.
#[derive(Debug)]
pub struct Ethtool {
    socket: OwnedFd,
    interface: String,
}

impl Ethtool {
    /// Opens `interface` in the calling thread's network namespace.
    ///
    /// # Errors
    /// The process has no descriptor left. Whether the interface exists is known at the first
    /// query.
    pub fn open(interface: &str) -> io::Result<Self> {
        // Any socket will do.
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        Ok(Self { socket, interface: interface.to_owned() })
    }

    /// `struct ethtool_drvinfo`: the driver's name in the 32 bytes from word 1 on, also of virtual
    /// interfaces.
    ///
    /// # Errors
    /// Of ioctl(2), as of every query: no such interface, or its driver does not support the query.
    pub fn driver(&self) -> io::Result<[u32; FIXED_WORDS]> {
        self.fixed(GDRVINFO)
    }

    /// `struct ethtool_coalesce`, as in `ethtool -c`.
    ///
    /// # Errors
    /// As [`driver`](Self::driver).
    pub fn coalescing(&self) -> io::Result<[u32; FIXED_WORDS]> {
        self.fixed(GCOALESCE)
    }

    /// `struct ethtool_ringparam`, as in `ethtool -g`.
    ///
    /// # Errors
    /// As [`driver`](Self::driver).
    pub fn rings(&self) -> io::Result<[u32; FIXED_WORDS]> {
        self.fixed(GRINGPARAM)
    }

    /// `struct ethtool_channels`, as in `ethtool -l`: the maxima of rx, tx, other and combined,
    /// then the four of now.
    ///
    /// # Errors
    /// As [`driver`](Self::driver).
    pub fn channels(&self) -> io::Result<[u32; FIXED_WORDS]> {
        self.fixed(GCHANNELS)
    }

    /// `struct ethtool_ts_info`, as in `ethtool -T`.
    ///
    /// # Errors
    /// As [`driver`](Self::driver).
    pub fn timestamping(&self) -> io::Result<[u32; FIXED_WORDS]> {
        self.fixed(GET_TS_INFO)
    }

    /// The five oldest offloads, as bits.
    ///
    /// # Errors
    /// As [`driver`](Self::driver).
    pub fn flags(&self) -> io::Result<u32> {
        Ok(self.fixed(GFLAGS)?[1])
    }

    /// The names of the offloads, as in `ethtool -k`, and their states: four words for each 32 of
    /// them, available, requested, active, never changed.
    ///
    /// # Errors
    /// As [`driver`](Self::driver), and the driver states more than can be or changes its list
    /// meanwhile.
    pub fn features(&self) -> io::Result<(Vec<String>, Vec<u32>)> {
        const HEAD: usize = 2;
        let names = self.names(StringSet::Features)?;
        let blocks = names.len().div_ceil(32);
        let mut words = vec![0; HEAD + blocks * FEATURE_WORDS];
        words[..HEAD].copy_from_slice(&[GFEATURES, blocks as u32]);
        self.call(&mut words)?;
        words.drain(..HEAD);
        Ok((names, words))
    }

    /// The driver's own counters with its own names, as in `ethtool -S`.
    ///
    /// # Errors
    /// As [`features`](Self::features).
    pub fn counters(&self) -> io::Result<Vec<(String, u64)>> {
        const HEAD: usize = 2;
        let names = self.names(StringSet::Counters)?;
        let count = names.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut words = vec![0; HEAD + (4 * count + SPARE_ITEMS) * STAT_WORDS];
        words[..HEAD].copy_from_slice(&[GSTATS, count as u32]);
        self.call(&mut words)?;
        unchanged(words[1], count)?;
        let (values, _) = words[HEAD..].as_chunks::<STAT_WORDS>();
        Ok(names.into_iter().zip(values.iter().map(|&pair| value(pair))).collect())
    }

    /// How many rules for its queues the NIC has (`ethtool -n`).
    ///
    /// # Errors
    /// As [`driver`](Self::driver).
    pub(crate) fn flow_rules(&self) -> io::Result<u32> {
        Ok(self.fixed(GRXCLSRLCNT)?[RULE_COUNT])
    }

    /// Has the NIC send the frames of a flow to a queue. Returns the rule's location in its table:
    /// where the driver chooses none, the next free one below `below`.
    ///
    /// # Errors
    /// EOPNOTSUPP: the NIC has no such rules, or they are off. EEXIST: it has this one. Others as
    /// the driver likes: no place, a combination of fields that it cannot compare.
    pub(crate) fn insert_flow_rule(&self, rule: &FlowRule, below: u32) -> io::Result<u32> {
        let mut words = rule.words();
        // A driver that chooses places says so in the highest bit of what it says of its table.
        let table = self.fixed(GRXCLSRLCNT)?;
        if table[RULE_DATA] & LOCATION_SPECIAL == 0 {
            words[RULE_LOCATION] = self.free_location(table[RULE_DATA], below)?;
        }
        self.call(&mut words)?;
        Ok(words[RULE_LOCATION])
    }

    /// What the NIC does with the frames of a rule that it has already; `None` where no rule of its
    /// table compares the same fields with the same values. Reads the whole table.
    ///
    /// # Errors
    /// As [`driver`](Self::driver).
    pub(crate) fn action_of(&self, rule: &FlowRule) -> io::Result<Option<FlowAction>> {
        let count = self.flow_rules()?.min(PLACES_MAX) as usize;
        let mut list = vec![0; FIXED_WORDS.max(RULE_LOCATIONS + count)];
        (list[0], list[RULE_COUNT]) = (GRXCLSRLALL, count as u32);
        self.call(&mut list)?;
        let count = count.min(list[RULE_COUNT] as usize);
        for &location in &list[RULE_LOCATIONS..RULE_LOCATIONS + count] {
            let mut words = [0; FIXED_WORDS];
            (words[0], words[RULE_LOCATION]) = (GRXCLSRULE, location);
            // One that was removed meanwhile is not it.
            if self.call(&mut words).is_ok() && rule.compares_as(&words) {
                return Ok(Some(FlowAction::of(&words)));
            }
        }
        Ok(None)
    }

    /// Removes the rule at a location.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn delete_flow_rule(&self, location: u32) -> io::Result<()> {
        let mut words = [0; FIXED_WORDS];
        (words[0], words[RULE_LOCATION]) = (SRXCLSRLDEL, location);
        self.call(&mut words)
    }

    /// A place of a table of `size` that has no rule: the next one below `below`, else the highest.
    /// Those of the operator, who mostly counts from 0, are compared first. A place of which the
    /// driver says anything else is not taken, because a rule there would be overwritten.
    fn free_location(&self, size: u32, below: u32) -> io::Result<u32> {
        let has_rule = |location: &u32| {
            let mut words = [0; FIXED_WORDS];
            (words[0], words[RULE_LOCATION]) = (GRXCLSRULE, *location);
            let error = self.call(&mut words).err().and_then(|error| error.raw_os_error());
            !matches!(error, Some(libc::ENOENT | libc::EINVAL))
        };
        let (end, below) = (size.min(PLACES_MAX), below.min(size.min(PLACES_MAX)));
        let mut places = (0..below).rev().chain((below..end).rev());
        places.find(|place| !has_rule(place)).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOSPC))
    }

    fn names(&self, set: StringSet) -> io::Result<Vec<String>> {
        const HEAD: usize = 3;
        let count = self.count(set)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut words = vec![0; HEAD + (4 * count + SPARE_ITEMS) * STRING_WORDS];
        words[..HEAD].copy_from_slice(&[GSTRINGS, set as u32, count as u32]);
        self.call(&mut words)?;
        unchanged(words[2], count)?;
        let (names, _) = words[HEAD..].as_chunks::<STRING_WORDS>();
        Ok(names[..count].iter().map(name).collect())
    }

    /// The number of names in a set.
    fn count(&self, set: StringSet) -> io::Result<usize> {
        let mut words = [0; FIXED_WORDS];
        // Command, a reserved word, 64 bits of requested sets; then the answers.
        (words[0], words[2]) = (GSSET_INFO, 1 << set as u32);
        self.call(&mut words)?;
        let count = if words[2] == 0 { 0 } else { words[4] as usize };
        if count > ITEMS_MAX {
            return Err(io::Error::other(format!("the driver states {count} names, which cannot be")));
        }
        Ok(count)
    }

    fn fixed(&self, command: u32) -> io::Result<[u32; FIXED_WORDS]> {
        let mut words = [0; FIXED_WORDS];
        words[0] = command;
        self.call(&mut words)?;
        Ok(words)
    }

    /// `words` has room for the answer of the command in its first word (3): every caller above
    /// ensures it.
    fn call(&self, words: &mut [u32]) -> io::Result<()> {
        ask(&self.socket, &self.interface, SIOCETHTOOL, words)
    }
}

impl FlowRule {
    /// The request to insert it (linux/ethtool.h), at any location.
    fn words(&self) -> [u32; FIXED_WORDS] {
        let mut words = [0; FIXED_WORDS];
        words[0] = SRXCLSRLINS;
        words[RULE_FLOW] = if self.is_tcp { FLOW_TCP } else { FLOW_UDP };
        let address = |address: Option<Ipv4Addr>| address.map_or([0; 2], |it| [u32::from(it).to_be(), u32::MAX]);
        let ports = [self.source_port, self.destination_port].map(|port| port.map_or([0; 2], |it| [it, u16::MAX]));
        let pair = |at: usize| {
            let [a, b] = [ports[0][at].to_be_bytes(), ports[1][at].to_be_bytes()];
            u32::from_ne_bytes([a[0], a[1], b[0], b[1]])
        };
        let (source, destination) = (address(self.source), address(self.destination));
        for (at, base) in [RULE_FIELDS, RULE_MASKS].into_iter().enumerate() {
            words[base..base + 3].copy_from_slice(&[source[at], destination[at], pair(at)]);
        }
        if let Some(vlan) = self.vlan {
            words[RULE_FLOW] |= FLOW_EXTENDED;
            // The tag follows two bytes of padding, six of an address and two of an EtherType.
            for (extension, tag) in [(RULE_EXTENSION, vlan), (RULE_MASK_EXTENSION, 0x0fff)] {
                let [high, low] = tag.to_be_bytes();
                words[extension + 2] = u32::from_ne_bytes([0, 0, high, low]);
            }
        }
        words[RULE_QUEUE] = if cfg!(target_endian = "little") { self.queue.into() } else { 0 };
        words[RULE_QUEUE + 1] = if cfg!(target_endian = "big") { self.queue.into() } else { 0 };
        words[RULE_LOCATION] = LOCATION_ANY;
        words
    }

    /// Whether a rule that a NIC has, in the words of its answer, compares the same fields of a
    /// frame with the same values.
    fn compares_as(&self, theirs: &[u32; FIXED_WORDS]) -> bool {
        const KINDS: u32 = !(FLOW_EXTENDED | FLOW_MAC_EXTENDED | FLOW_RSS);
        let ours = self.words();
        // Without the flag, the words of the extension are those of no rule.
        let mask = |words: &[u32; FIXED_WORDS], idx: usize| match RULE_MASKS + idx {
            at if at < RULE_MASK_EXTENSION => words[at],
            at if words[RULE_FLOW] & (FLOW_EXTENDED | FLOW_MAC_EXTENDED) != 0 => words[at],
            _ => 0,
        };
        let is_same = |idx: usize| {
            let (our_mask, their_mask) = (mask(&ours, idx), mask(theirs, idx));
            our_mask == their_mask && (ours[RULE_FIELDS + idx] ^ theirs[RULE_FIELDS + idx]) & our_mask == 0
        };
        ours[RULE_FLOW] & KINDS == theirs[RULE_FLOW] & KINDS && (0..RULE_MASKS - RULE_FIELDS).all(is_same)
    }
}

impl FlowAction {
    fn of(words: &[u32; FIXED_WORDS]) -> Self {
        let [first, second] = [words[RULE_QUEUE], words[RULE_QUEUE + 1]];
        match (value([first, second]), words[RULE_FLOW] & FLOW_RSS) {
            (queue @ 0..=0xffff, 0) => Self::Queue(queue as u16),
            _ => Self::Other,
        }
    }
}

fn unchanged(answered: u32, asked: usize) -> io::Result<()> {
    if answered as usize == asked {
        return Ok(());
    }
    Err(io::Error::other("the driver changed its list while it was read"))
}

/// Up to 32 bytes, terminated by a zero.
fn name(words: &[u32; STRING_WORDS]) -> String {
    let bytes = words.as_bytes().split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

fn value([first, second]: [u32; STAT_WORDS]) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The current timestamp filter of the NIC. `socket` is any socket of the network namespace.
pub(crate) fn stamp_filter(socket: &OwnedFd, interface: &str) -> io::Result<StampFilter> {
    let mut filter = StampFilter::default();
    ask(socket, interface, SIOCGHWTSTAMP, &mut filter)?;
    Ok(filter)
}

/// Sets which frames the NIC stamps; it may apply a filter that stamps more.
pub(crate) fn set_stamp_filter(socket: &OwnedFd, interface: &str, mut wanted: StampFilter) -> io::Result<()> {
    ask(socket, interface, SIOCSHWTSTAMP, &mut wanted)
}

/// An ioctl(2) about an interface, with words that the kernel reads and writes: as many as the
/// command takes (3).
fn ask(socket: &OwnedFd, interface: &str, command: libc::Ioctl, words: &mut [u32]) -> io::Result<()> {
    let mut request = Request { name: [0; libc::IFNAMSIZ], data: words.as_mut_ptr(), rest: [0; 2] };
    // The last byte remains zero.
    let len = interface.len().min(libc::IFNAMSIZ - 1);
    request.name[..len].copy_from_slice(&interface.as_bytes()[..len]);
    // SAFETY: request and words are borrowed mutably for the call (1, 2), and the words have room
    // for the answer (3).
    check(unsafe { libc::ioctl(socket.as_raw_fd(), command, &raw mut request) }).map(drop)
}

/// The current name of the interface `index`, in the network namespace of `socket`.
pub(crate) fn interface_name(socket: &OwnedFd, index: u32) -> io::Result<InterfaceName> {
    // `struct ifreq` with an integer in it.
    let mut request = [0u32; 10];
    request[libc::IFNAMSIZ / 4] = index;
    // SAFETY: the request is borrowed mutably for the call (1, 2).
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGIFNAME, request.as_mut_ptr()) })?;
    let name = request[..libc::IFNAMSIZ / 4].as_bytes().split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(name.iter().copied().collect())
}

/// The flags of the interface `name`, of the network namespace of `socket`. Takes no lock in the
/// kernel.
pub(crate) fn interface_flags(socket: &OwnedFd, name: &[u8]) -> io::Result<i32> {
    // `struct ifreq`, with the flags as a short behind the name.
    let mut request = [0u8; 40];
    // The last byte of the name remains zero.
    let len = name.len().min(libc::IFNAMSIZ - 1);
    request[..len].copy_from_slice(&name[..len]);
    // SAFETY: the request is borrowed mutably for the call (1, 2).
    check(unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGIFFLAGS, request.as_mut_ptr()) })?;
    Ok(i16::from_ne_bytes([request[libc::IFNAMSIZ], request[libc::IFNAMSIZ + 1]]).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_interface_is_an_error() {
        let ethtool = Ethtool::open("not-there").unwrap();
        assert_eq!(ethtool.rings().unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(ethtool.counters().is_err());
    }

    #[test]
    fn rule_of_a_nic_is_laid_out_as_in_the_kernels_header() {
        let rule = FlowRule {
            is_tcp: true,
            source: Some(Ipv4Addr::new(192, 0, 2, 1)),
            destination: Some(Ipv4Addr::new(192, 0, 2, 2)),
            source_port: None,
            destination_port: Some(0x1234),
            vlan: Some(0x0abc),
            queue: 3,
        };
        let words = rule.words();
        let bytes = words.as_bytes();
        assert_eq!(bytes[20..32], [192, 0, 2, 1, 192, 0, 2, 2, 0, 0, 0x12, 0x34]);
        assert_eq!(bytes[92..104], [255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 255, 255]);
        assert_eq!((bytes[82..84].to_vec(), bytes[154..156].to_vec()), (vec![0x0a, 0xbc], vec![0x0f, 0xff]));
        assert_eq!(bytes[168..176], 3_u64.to_ne_bytes());
        assert_eq!((words[0], words[4], words[44]), (SRXCLSRLINS, FLOW_TCP | FLOW_EXTENDED, u32::MAX));
    }

    #[test]
    fn rule_that_stands_in_a_nic_is_known_by_what_it_compares_and_does() {
        let rule = FlowRule {
            is_tcp: false,
            source: None,
            destination: Some(Ipv4Addr::new(239, 1, 1, 1)),
            source_port: None,
            destination_port: Some(9_000),
            vlan: None,
            queue: 3,
        };
        let changed = |at: usize, word: u32| {
            let mut words = rule.words();
            words[at] = word;
            words
        };
        assert!(rule.compares_as(&rule.words()));
        // A driver may set the flag of the extension without one, and leave anything behind masks.
        assert!(rule.compares_as(&changed(RULE_FLOW, FLOW_UDP | FLOW_EXTENDED)));
        assert!(rule.compares_as(&changed(RULE_FIELDS, 7)));
        assert!(rule.compares_as(&changed(RULE_MASK_EXTENSION, 7)), "without the flag");
        for (at, word) in [(RULE_FLOW, FLOW_TCP), (RULE_FIELDS + 1, 7), (RULE_MASKS, u32::MAX), (RULE_MASKS + 3, 7)] {
            assert!(!rule.compares_as(&changed(at, word)), "word {at}");
        }
        let on_vlan = FlowRule { vlan: Some(5), ..rule };
        assert!(!rule.compares_as(&on_vlan.words()) && on_vlan.compares_as(&on_vlan.words()));
        assert!(!on_vlan.compares_as(&FlowRule { vlan: Some(6), ..rule }.words()));
        assert_eq!(FlowAction::of(&rule.words()), FlowAction::Queue(3));
        // RX_CLS_FLOW_DISC; a virtual function.
        for cookie in [u64::MAX, 1 << 32] {
            let mut words = rule.words();
            let bytes = cookie.to_ne_bytes();
            words[RULE_QUEUE] = u32::from_ne_bytes(*bytes.first_chunk().unwrap());
            words[RULE_QUEUE + 1] = u32::from_ne_bytes(*bytes.last_chunk().unwrap());
            assert_eq!(FlowAction::of(&words), FlowAction::Other);
        }
        assert_eq!(FlowAction::of(&changed(RULE_FLOW, FLOW_UDP | FLOW_RSS)), FlowAction::Other);
    }

    #[test]
    fn name_of_an_interface_is_asked_by_its_number() {
        let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0).unwrap();
        assert_eq!(interface_name(&socket, 1).unwrap().as_slice(), b"lo");
        assert_eq!(interface_name(&socket, u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
