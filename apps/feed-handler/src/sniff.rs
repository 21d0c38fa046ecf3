//! Detects the format of a file: tries its first packets against every format, so that a wrong
//! `--format` is answered with the right one instead of a summary full of zeros.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use market::framing::Framing;
use market::framing::itch_file::ItchFile;
use market::itch50::Itch50;
use market::{Codec, Decoder, MessageCounts, MessageError};
use wirepath::device::pcap::{Problem, Reader};
use wirepath::wire::ethernet::EthernetFrame;
use wirepath::wire::ipv4::Ipv4Packet;
use wirepath::wire::udp::UdpHeader;
use wirepath::wire::{EtherType, Protocol as IpProtocol};

use crate::error::Error;
use crate::format::{Format, Protocol, with_protocol};
use crate::plan::ReplayPlan;

/// Frames that are tried: enough to get past other traffic, few enough to cost no noticeable time.
const FRAMES_MAX: u64 = 4_096;
/// Messages at the front of a plain file, most of which must be known: newer versions of a feed add
/// types.
const MESSAGES_MAX: usize = 64;
/// Bytes of a file that are read for them.
const BEGINNING_LEN: u64 = 8_192;

/// The kind of a file, by its beginning.
#[derive(Debug)]
enum FileKind {
    /// A capture.
    Capture(CaptureContents),
    /// A file of ITCH messages.
    ItchFile,
    /// Something else, or unreadable.
    Other,
}

/// The contents of a capture's first packets.
#[derive(Debug, Default)]
struct CaptureContents {
    frames: u64,
    /// Datagrams to each group.
    groups: BTreeMap<SocketAddrV4, u64>,
    /// Datagrams to groups that are whole packets of each capture format.
    decodes: [u64; CAPTURED.len()],
}

/// The formats that captures hold, in the order of [`CaptureContents::decodes`].
const CAPTURED: [Format; 9] = [
    Format::MoldItch50,
    Format::IexTops,
    Format::IexDeep,
    Format::CboePitch,
    Format::CmeMdp3,
    Format::NysePillar,
    Format::MemxDepth,
    Format::B3Umdf,
    Format::EurexEobi,
];

/// Refuses a plan whose file is plainly of another format, before anything starts. In doubt it
/// passes: the worker will find out.
pub fn check(plan: &ReplayPlan) -> Result<(), Error> {
    // A pipe can be read only once.
    if !plan.input.is_file() {
        return Ok(());
    }
    let file = plan.input.display();
    let refused = match (look(&plan.input), plan.feed.format) {
        (FileKind::Capture(survey), Format::Itch50File) => {
            format!("{file} is a capture and not a plain file of messages; {}", survey.advice())
        }
        (FileKind::Capture(survey), _) if plan.feed.formats().into_iter().all(|format| survey.contradicts(format)) => {
            let formats = plan.feed.format_names();
            format!(
                "{file} does not hold {formats}: no packet of its first {} decodes; {}",
                survey.frames,
                survey.advice()
            )
        }
        (FileKind::ItchFile, format) if format != Format::Itch50File => {
            format!(
                "{file} is not a capture: it looks like a plain file of ITCH 5.0 messages, so use --format itch50-file"
            )
        }
        (FileKind::Other, Format::Itch50File) => format!(
            "{file} is not a file of ITCH 5.0 messages: its beginning is not a two-byte length and a message of that \
             length; give a BinaryFILE as Nasdaq publishes them, plain or gzip"
        ),
        _ => return Ok(()),
    };
    Err(Error::Failed(refused))
}

/// The sentence for a replay that found no packet of its format: whether the file is empty, has
/// other groups, or holds another format, and which.
pub fn explain_no_packets(plan: &ReplayPlan) -> String {
    let (file, format) = (plan.input.display(), plan.feed.format_names());
    let survey = match look(&plan.input) {
        FileKind::Capture(survey) => survey,
        FileKind::ItchFile | FileKind::Other => return format!("{file} holds no packet of {format}"),
    };
    if survey.frames == 0 {
        return format!("{file} holds no packets: give a capture with traffic in it");
    }
    let named =
        plan.feed.groups.iter().copied().chain(plan.feed.sets.iter().flat_map(|set| &set.lines).map(|line| line.group));
    let named: Vec<_> = named.collect();
    if !named.is_empty() && !named.iter().any(|group| survey.groups.contains_key(group)) {
        return format!("{file} has no packet to the groups that were named; it has {}", survey.groups_listed());
    }
    if plan.feed.formats().into_iter().any(|format| survey.holds(format)) {
        return format!("no packet of {format} arrived, though {file} has some: see what dropped them in the summary");
    }
    format!("{file} does not hold {format}: no packet decodes; {}", survey.advice())
}

impl CaptureContents {
    /// No packet decodes as `format`, but some decode as another format.
    fn contradicts(&self, format: Format) -> bool {
        CAPTURED.contains(&format) && !self.holds(format) && self.decodes.iter().any(|&count| count > 0)
    }

    /// Something decodes as `format`.
    fn holds(&self, format: Format) -> bool {
        CAPTURED.iter().zip(self.decodes).any(|(&captured, count)| captured == format && count > 0)
    }

    /// The detected format, and the remedy.
    fn advice(&self) -> String {
        let best = (0..CAPTURED.len()).max_by_key(|&idx| self.decodes[idx]).filter(|&idx| self.decodes[idx] > 0);
        if let Some(best) = best {
            let format = CAPTURED[best];
            return format!(
                "it looks like {format} ({} of its first {} packets do), so use --format {format}",
                self.decodes[best], self.frames
            );
        }
        if self.groups.is_empty() {
            return "there is no UDP multicast in it: record where the feed arrives".to_owned();
        }
        format!("it has {}, in none of the formats {}", self.groups_listed(), CAPTURED.map(Format::name).join(", "))
    }

    fn groups_listed(&self) -> String {
        const LISTED: usize = 4;
        let listed: Vec<_> =
            self.groups.iter().take(LISTED).map(|(group, count)| format!("{group} ({count} times)")).collect();
        let more = self.groups.len().saturating_sub(LISTED);
        let more = if more > 0 { format!(" and {more} more groups") } else { String::new() };
        if listed.is_empty() {
            return "no groups at all".to_owned();
        }
        format!("{}{more} among its first {} packets", listed.join(", "), self.frames)
    }

    fn look_at(&mut self, frame: &[u8]) {
        self.frames += 1;
        let Some((group, payload)) = datagram(frame) else { return };
        if !group.ip().is_multicast() {
            return;
        }
        *self.groups.entry(group).or_default() += 1;
        for (count, format) in self.decodes.iter_mut().zip(CAPTURED) {
            *count += u64::from(with_protocol!(format, P => decodes::<P>(payload)));
        }
    }
}

fn look(path: &Path) -> FileKind {
    match Reader::open(path) {
        Ok(mut reader) => {
            let mut survey = CaptureContents::default();
            while survey.frames < FRAMES_MAX
                && let Ok(Some(record)) = reader.next()
            {
                survey.look_at(record.bytes);
            }
            FileKind::Capture(survey)
        }
        Err(error) if matches!(error.problem(), Problem::NotACapture(_)) && is_itch_file(path) => FileKind::ItchFile,
        Err(_) => FileKind::Other,
    }
}

/// The destination of a frame's whole UDP datagram, and its payload.
fn datagram(frame: &[u8]) -> Option<(SocketAddrV4, &[u8])> {
    let ethernet = EthernetFrame::parse(frame).ok().filter(|ethernet| ethernet.ethertype == EtherType::IPV4)?;
    let ipv4 = Ipv4Packet::parse(ethernet.payload).ok()?;
    if ipv4.header.protocol() != IpProtocol::UDP || ipv4.header.is_fragment() {
        return None;
    }
    let (udp, payload) = UdpHeader::parse(ipv4.payload).ok()?;
    let destination: Ipv4Addr = ipv4.header.destination();
    Some((SocketAddrV4::new(destination, udp.destination_port()), payload))
}

/// The payload is a whole packet of the format, and all its messages are known. A capture may begin
/// behind the definitions of its instruments.
fn decodes<P: Protocol>(payload: &[u8]) -> bool {
    let Ok(packet) = P::Framing::parse(payload) else { return false };
    let (mut codec, mut counts) = (P::Codec::default(), MessageCounts::new());
    P::carries(&packet.raw)
        && packet.messages().all(|message| {
            let decoded = codec.decode_each(message, &mut counts, &mut |_| ());
            matches!(decoded, Ok(()) | Err(MessageError::Undefined { .. }))
        })
}

/// Plain or gzip; the beginning is whole messages, and most of them ITCH.
fn is_itch_file(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut beginning = Vec::new();
    if file.take(BEGINNING_LEN).read_to_end(&mut beginning).is_err() {
        return false;
    }
    if beginning.starts_with(&[0x1f, 0x8b]) {
        let mut inflated = Vec::new();
        // The gzip stream is cut off; the part that was inflated is used.
        let _ = MultiGzDecoder::new(&beginning[..]).take(BEGINNING_LEN).read_to_end(&mut inflated);
        beginning = inflated;
    }
    let mut rest = &beginning[..];
    let (mut messages, mut known) = (0, 0);
    while messages < MESSAGES_MAX
        && let Some((message, behind)) = ItchFile::split(rest)
        // A length of zero ends a file.
        && !message.is_empty()
    {
        known += usize::from(Itch50.decode(message).is_ok());
        messages += 1;
        rest = behind;
    }
    known * 2 > messages
}
