//! The primary's side, without sockets and clock.

use order_entry::journal::{HEADER_LEN, Journal};

use super::frame::{CONTENT_MAX, Frame, LastRecord, RdmaEnd, take_frames, too_small};
use super::promise::{ALIVE_NS, SILENCE_NS};
use order_entry::journal::JournalMemory;

/// A standby whose copy lacks no more than this is near enough to be waited for.
pub(super) const NEAR: usize = 64 * 1_024;
/// Bytes that wait for the standby's socket.
const OUT_MAX: usize = 256 * 1_024;

/// A standby is asked four times in a lease. One that is silent for so many of them is gone, while
/// the connection to a machine that has lost its power stays open for a quarter of an hour.
const SILENT_LEASES: u64 = 4;

const ANOTHER: &str = "the standby's copy is no part of this journal: it must begin with an empty file";

/// What the gateway writes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrimaryEvent {
    /// From now on nothing is sent without the grants of this standby.
    Attached(u64),
    /// The standby has left: the primary is alone.
    Left,
}

/// How the standby gets the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    /// In frames, which it acknowledges.
    #[default]
    Frames,
    /// The primary writes them into the copy, and nothing is sent before there is a standby.
    Writes,
    /// Likewise, and the standby is asked for no grants.
    Unfenced,
}

/// The memory of a standby that is written into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) address: u64,
    pub(super) rkey: u32,
    pub(super) len: usize,
    /// The copy's end.
    pub(super) from: usize,
    pub(super) end: RdmaEnd,
}

/// A standby's connection.
#[derive(Debug, Default)]
struct Follows {
    standby: u64,
    /// Records before are sent, and acknowledged.
    sent: usize,
    acknowledged: usize,
    /// The last question.
    asked_ns: u64,
    /// The last word that this process lives, where nothing is asked.
    alive_ns: u64,
    /// It has granted, so it takes over by itself when nothing more comes.
    has_promised: bool,
    /// Where it is written into, until somebody has taken that.
    memory: Option<Memory>,
    /// Where the journal ended when its queue pair answered. Before the copy has so much, it would
    /// take over without what was sent.
    ready_end: Option<usize>,
}

/// Whether bytes may be sent to the venue, and what goes to the standby.
#[derive(Debug)]
pub struct Primary {
    lease_ns: u64,
    /// The standby without whose grants nothing is sent; 0 for none.
    standby: u64,
    granted_until_ns: u64,
    is_fenced: bool,
    way: Way,
    /// A person knows that no standby runs. It holds until one has attached and left.
    is_alone: bool,
    follows: Option<Follows>,
    pending: Vec<u8>,
    out: Vec<u8>,
}

impl Primary {
    /// A primary whose journal names `standby`; 0 for none.
    pub fn new(lease_ns: u64, standby: u64) -> Self {
        let (pending, out) = (Vec::new(), Vec::new());
        let (way, is_alone) = (Way::Frames, false);
        Self { lease_ns, standby, granted_until_ns: 0, is_fenced: false, way, is_alone, follows: None, pending, out }
    }

    /// One that writes its records into the standby's memory. One that is `fenced` sends nothing
    /// before there is a standby, or a person says `alone`; another one asks for no grants.
    pub fn writing(lease_ns: u64, standby: u64, fenced: bool) -> Self {
        Self { way: if fenced { Way::Writes } else { Way::Unfenced }, ..Self::new(lease_ns, standby) }
    }

    /// The length of its grants; `None` where it sends without them.
    pub(super) const fn fenced_ns(&self) -> Option<u64> {
        match self.way {
            Way::Frames | Way::Writes => Some(self.lease_ns),
            Way::Unfenced => None,
        }
    }

    /// A connection was made: the one before is forgotten.
    pub fn connected(&mut self) {
        self.disconnected();
    }

    /// The connection is gone. Grants hold until their end.
    pub fn disconnected(&mut self) {
        self.follows = None;
        self.pending.clear();
        self.out.clear();
    }

    /// Whether bytes may be sent to the venue now.
    pub const fn may_send(&self, now_ns: u64) -> bool {
        let has_grant = match self.standby {
            0 => !matches!(self.way, Way::Writes) || self.is_alone,
            _ => now_ns < self.granted_until_ns,
        };
        !self.is_fenced && has_grant
    }

    /// Whether orders wait for this standby, or for one that is still to come.
    pub(super) const fn is_followed(&self) -> bool {
        self.standby != 0
    }

    /// How long the standby may be silent; `None` where nothing asks it to speak.
    pub(super) fn silence_ns_max(&self) -> Option<u64> {
        match &self.follows {
            Some(follows) if follows.asked_ns != 0 => Some(self.lease_ns.saturating_mul(SILENT_LEASES)),
            // A WRITE without an acknowledgment tells.
            Some(follows) if follows.ready_end.is_some() => None,
            _ => Some(SILENCE_NS),
        }
    }

    /// Whether the standby has granted something on this connection.
    pub(super) fn has_promise(&self) -> bool {
        self.follows.as_ref().is_some_and(|follows| follows.has_promised)
    }

    /// Where the standby that has just connected is written into.
    pub(super) fn take_memory(&mut self) -> Option<Memory> {
        self.follows.as_mut()?.memory.take()
    }

    /// The standby's queue pair answers: records may be written.
    pub(super) fn is_ready(&self) -> bool {
        self.follows.as_ref().is_some_and(|follows| follows.ready_end.is_some())
    }

    /// Says a frame to the standby.
    pub(super) fn say(&mut self, frame: Frame<'_>) {
        frame.emit(&mut self.out);
    }

    /// Records before `posted` are in WRITEs, and the standby's memory has those before
    /// `acknowledged`.
    pub fn wrote(&mut self, posted: usize, acknowledged: usize) {
        if let Some(follows) = &mut self.follows {
            follows.sent = follows.sent.max(posted);
            follows.acknowledge(acknowledged as u64);
        }
    }

    /// Whether bytes whose records end at `end` may be sent: the standby has the records.
    pub fn has(&self, end: usize) -> bool {
        self.standby == 0 || self.follows.as_ref().is_some_and(|follows| follows.acknowledged >= end)
    }

    /// The standby that has just attached is none, and was asked nothing. Who waited for a mirror
    /// waits for one still.
    pub(super) const fn dismiss(&mut self) {
        self.standby = 0;
    }

    /// A person knows that the standby does not run.
    pub const fn alone(&mut self) {
        (self.standby, self.is_alone) = (0, true);
    }

    /// Bytes for the standby.
    pub fn to_send(&self) -> &[u8] {
        &self.out
    }

    /// The standby's socket took `len` bytes.
    pub fn sent(&mut self, len: usize) {
        self.out.drain(..len);
    }

    /// Takes bytes of the standby. On an error, and behind its last word, the connection is closed.
    pub fn receive<M: JournalMemory>(
        &mut self,
        bytes: &[u8],
        journal: &Journal<M>,
    ) -> Result<Option<PrimaryEvent>, String> {
        self.pending.extend_from_slice(bytes);
        let mut pending = core::mem::take(&mut self.pending);
        let mut event = None;
        let taken = take_frames(&mut pending, |frame| {
            // What comes behind its last word is nobody's.
            if event.is_none() {
                event = self.take(frame, journal)?;
            }
            Ok(())
        });
        if event.is_some() {
            return Ok(event);
        }
        taken?;
        self.pending = pending;
        Ok(event)
    }

    fn take<M: JournalMemory>(
        &mut self,
        frame: Frame<'_>,
        journal: &Journal<M>,
    ) -> Result<Option<PrimaryEvent>, String> {
        match (frame, &mut self.follows) {
            (Frame::Follow { standby, journal: id, end }, None) => {
                let end = self.admit(standby, id, end, journal)?;
                if id == 0 && self.way == Way::Frames {
                    Frame::Header(journal.header()).emit(&mut self.out);
                }
                // What is written begins with the file header.
                let end = if id == 0 && self.way != Way::Frames { 0 } else { end };
                self.follows = Some(Follows { standby, sent: end, acknowledged: end, ..Follows::default() });
            }
            (Frame::Memory { address, rkey, len, end, last }, Some(follows)) if self.way != Way::Frames => {
                if !is_part(follows.acknowledged, last, journal) {
                    return Err(ANOTHER.to_owned());
                }
                fits(len, journal, &mut self.out)?;
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                follows.memory = Some(Memory { address, rkey, len, from: follows.acknowledged, end });
            }
            (Frame::Ready, Some(follows)) if self.way != Way::Frames => follows.ready_end = Some(journal.end()),
            (Frame::End { end }, Some(follows)) => follows.acknowledge(end),
            (Frame::Grant { asked_ns, end }, Some(follows)) => {
                follows.acknowledge(end);
                // Only what was asked on this connection is an answer.
                if follows.standby == self.standby && (1..=follows.asked_ns).contains(&asked_ns) {
                    follows.has_promised = true;
                    self.granted_until_ns = self.granted_until_ns.max(asked_ns.saturating_add(self.lease_ns));
                }
            }
            (Frame::Leave, Some(follows)) if follows.standby == self.standby => {
                (self.standby, self.is_alone, self.follows) = (0, false, None);
                return Ok(Some(PrimaryEvent::Left));
            }
            (Frame::Leave, _) => self.follows = None,
            (frame, _) => return Err(format!("the standby sent {frame:?}, which is none of its messages now")),
        }
        Ok(None)
    }

    /// Where the records begin that the standby lacks.
    fn admit<M: JournalMemory>(
        &mut self,
        standby: u64,
        id: u64,
        end: u64,
        journal: &Journal<M>,
    ) -> Result<usize, String> {
        if self.standby != 0 && self.standby != standby {
            return Err("another standby may still take over: say `alone` when it does not run".to_owned());
        }
        match (id, usize::try_from(end)) {
            // An older standby does not say its room. The memory of one that is written comes
            // later.
            (0, _) if end > 0 && self.way == Way::Frames => fits(end, journal, &mut self.out).map(|()| HEADER_LEN),
            (0, _) => Ok(HEADER_LEN),
            (id, Ok(end)) if id == journal.id() && (HEADER_LEN..=journal.end()).contains(&end) => Ok(end),
            _ => Err(ANOTHER.to_owned()),
        }
    }

    /// Asks for grants and sends records. Call it in each turn.
    pub fn poll<M: JournalMemory>(&mut self, now_ns: u64, journal: &Journal<M>) -> Option<PrimaryEvent> {
        if self.way == Way::Frames {
            self.frame_all(journal);
        }
        let follows = self.follows.as_mut()?;
        if !self.way.may_ask(follows) {
            if self.out.is_empty() && now_ns.saturating_sub(follows.alive_ns) >= ALIVE_NS {
                follows.alive_ns = now_ns;
                Frame::Alive.emit(&mut self.out);
            }
            return None;
        }
        if self.standby == follows.standby {
            if now_ns.saturating_sub(follows.asked_ns) >= self.lease_ns / 4 && !self.is_fenced {
                follows.asked_ns = now_ns;
                Frame::Renew { asked_ns: now_ns, lease_ns: self.lease_ns }.emit(&mut self.out);
            }
        } else if journal.end() - follows.acknowledged <= NEAR {
            // It has promised nothing yet, and takes over only after it has.
            self.standby = follows.standby;
            self.granted_until_ns = now_ns.saturating_add(self.lease_ns);
            return Some(PrimaryEvent::Attached(self.standby));
        }
        None
    }

    /// Puts the records that the standby lacks into frames. False where not all have room, or
    /// nobody follows.
    pub(super) fn frame_all<M: JournalMemory>(&mut self, journal: &Journal<M>) -> bool {
        let Some(follows) = &mut self.follows else { return false };
        while self.out.len() < OUT_MAX && follows.sent < journal.end() {
            let records = journal.written(follows.sent);
            let records = &records[..records.len().min(CONTENT_MAX)];
            follows.sent += records.len();
            Frame::Records(records).emit(&mut self.out);
        }
        follows.sent == journal.end()
    }

    /// Sends nothing to the venue any more, and has the standby take over. False where none has a
    /// grant in force: if this message were lost, nobody would trade.
    pub fn hand_over(&mut self, now_ns: u64) -> bool {
        let is_there = self.can_hand_over(now_ns);
        if is_there {
            self.is_fenced = true;
            Frame::HandOver.emit(&mut self.out);
        }
        is_there
    }

    /// Whether a standby has a grant in force, and is connected.
    pub(super) fn can_hand_over(&self, now_ns: u64) -> bool {
        let has_promised = |follows: &Follows| follows.standby == self.standby && follows.has_promised;
        self.standby != 0 && self.follows.as_ref().is_some_and(has_promised) && self.may_send(now_ns)
    }

    /// Ends for good: the standby ends as well.
    pub fn leave(&mut self) {
        if self.follows.is_some() && !self.is_fenced {
            Frame::Leave.emit(&mut self.out);
        }
    }
}

impl Way {
    /// Whether the standby may be asked for grants.
    fn may_ask(self, follows: &Follows) -> bool {
        match self {
            Self::Frames => true,
            Self::Writes => follows.ready_end.is_some_and(|end| follows.acknowledged >= end),
            Self::Unfenced => false,
        }
    }
}

/// Refuses a copy whose `room` is less than the journal's: it would work until it is full, and then
/// nothing more would be sent.
fn fits<M: JournalMemory>(room: u64, journal: &Journal<M>, out: &mut Vec<u8>) -> Result<(), String> {
    let needed = journal.memory().as_ref().len() as u64;
    if room >= needed {
        return Ok(());
    }
    Frame::TooSmall { needed }.emit(out);
    Err(too_small(room, needed))
}

/// Whether a copy that ends at `end` with the record `last` has the history of this journal. A sum
/// starts from the one before, so the last speaks for all.
fn is_part<M: JournalMemory>(end: usize, last: LastRecord, journal: &Journal<M>) -> bool {
    let start = usize::try_from(last.start).unwrap_or(usize::MAX);
    end <= HEADER_LEN || journal.sum_of(start..end) == Some(last.sum)
}

impl Follows {
    fn acknowledge(&mut self, end: u64) {
        let end = usize::try_from(end).unwrap_or(usize::MAX).min(self.sent);
        self.acknowledged = self.acknowledged.max(end);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use order_entry::journal::{Journal, Records};

    use super::*;

    const LEASE_NS: u64 = 1_000;

    fn journal() -> Journal<Vec<u8>> {
        Journal::create(vec![0; 4_096], 5, 0, 0).expect("room for a header")
    }

    fn say(primary: &mut Primary, frame: Frame<'_>, journal: &Journal<Vec<u8>>) {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        primary.receive(&bytes, journal).expect("a frame of a standby");
    }

    /// A standby with empty memory has connected.
    fn followed(primary: &mut Primary, journal: &Journal<Vec<u8>>) {
        let end = RdmaEnd { qpn: 0x12_3456, psn: 0xff_ffff, mtu: 3, ip: Ipv4Addr::new(192, 0, 2, 1) };
        primary.connected();
        say(primary, Frame::Follow { standby: 7, journal: 0, end: 0 }, journal);
        let last = LastRecord::default();
        say(primary, Frame::Memory { address: 1 << 40, rkey: 9, len: 4_096, end, last }, journal);
        assert_eq!(primary.take_memory(), Some(Memory { address: 1 << 40, rkey: 9, len: 4_096, from: 0, end }));
    }

    #[test]
    fn primary_that_writes_sends_nothing_before_its_mirror_has_the_journal_and_grants() {
        let (journal, mut primary) = (journal(), Primary::writing(LEASE_NS, 0, true));
        assert!(!primary.may_send(1));
        followed(&mut primary, &journal);
        assert_eq!(primary.poll(1, &journal), None, "nothing answers there yet");
        say(&mut primary, Frame::Ready, &journal);
        assert!(!primary.has(journal.end()) || !primary.may_send(1));
        primary.wrote(journal.end(), journal.end());
        assert_eq!(primary.poll(1, &journal), Some(PrimaryEvent::Attached(7)));
        assert!(primary.may_send(1) && primary.has(journal.end()));
        assert!(!primary.may_send(1 + LEASE_NS), "no grant");
        primary.alone();
        assert!(primary.may_send(1 + LEASE_NS));
    }

    /// A primary whose mirror has attached.
    fn attached(mut primary: Primary, journal: &Journal<Vec<u8>>) -> Primary {
        followed(&mut primary, journal);
        say(&mut primary, Frame::Ready, journal);
        primary.wrote(journal.end(), journal.end());
        assert_eq!(primary.poll(1, journal), Some(PrimaryEvent::Attached(7)));
        primary
    }

    #[test]
    fn primary_waits_for_a_mirror_when_the_one_that_attached_could_not_be_written_down() {
        let journal = journal();
        let mut primary = attached(Primary::writing(LEASE_NS, 0, true), &journal);
        primary.disconnected();
        primary.dismiss();
        assert!(!primary.may_send(1), "no mirror is there, and nobody has said `alone`");
        primary.alone();
        let mut primary = attached(primary, &journal);
        primary.disconnected();
        primary.dismiss();
        assert!(primary.may_send(1));
    }

    #[test]
    fn primary_waits_for_a_mirror_behind_one_that_came_after_alone_and_left() {
        let journal = journal();
        let mut primary = Primary::writing(LEASE_NS, 0, true);
        primary.alone();
        let mut primary = attached(primary, &journal);
        say(&mut primary, Frame::Leave, &journal);
        assert!(!primary.may_send(1));
    }

    #[test]
    fn records_are_there_when_their_write_is_acknowledged_and_not_when_it_is_posted() {
        let (mut journal, mut primary) = (journal(), Primary::writing(LEASE_NS, 0, true));
        followed(&mut primary, &journal);
        say(&mut primary, Frame::Ready, &journal);
        primary.wrote(journal.end(), journal.end());
        assert!(primary.poll(1, &journal).is_some());
        let before = journal.end();
        journal.append(11, order_entry::journal::Stamp::default(), b"an order").expect("room for a record");
        primary.wrote(journal.end(), before);
        assert!(!primary.has(journal.end()));
        primary.wrote(journal.end(), journal.end());
        assert!(primary.has(journal.end()));
    }

    /// It would take over with what it had before.
    #[test]
    fn mirror_is_asked_for_no_grant_before_it_has_the_journal_as_it_was_when_its_queue_pair_answered() {
        for named in [0, 7] {
            let (mut journal, mut primary) = (journal(), Primary::writing(LEASE_NS, named, true));
            let before = journal.end();
            journal.append(11, order_entry::journal::Stamp::default(), b"an order").expect("room for a record");
            followed(&mut primary, &journal);
            say(&mut primary, Frame::Ready, &journal);
            primary.wrote(journal.end(), before);
            assert_eq!(primary.poll(LEASE_NS, &journal), None);
            assert!(primary.to_send().is_empty(), "it lacks the order");
            primary.wrote(journal.end(), journal.end());
            assert_eq!(primary.poll(LEASE_NS, &journal).is_some(), named == 0);
            assert_eq!(primary.poll(2 * LEASE_NS, &journal), None);
            assert!(!primary.to_send().is_empty());
        }
    }

    /// A journal that went back to a backup and traded again has the id and the length, and other
    /// orders.
    #[test]
    fn copy_with_another_history_of_the_journal_is_refused() {
        let stamp = order_entry::journal::Stamp::default();
        let (mut ours, mut theirs) = (journal(), journal());
        for (journal, other) in [(&mut ours, b"an order"), (&mut theirs, b"a cancel")] {
            journal.append(11, stamp, other).expect("room for a record");
            journal.append(11, stamp, b"the same").expect("room for a record");
        }
        let mut records = Records::new(theirs.memory()).expect("a journal");
        let start = records.next().map(|_| records.end()).expect("a record") as u64;
        let end = RdmaEnd { qpn: 1, psn: 1, mtu: 3, ip: Ipv4Addr::LOCALHOST };
        records.by_ref().for_each(drop);
        let last = LastRecord { start, sum: records.last_sum() };
        for (journal, is_admitted) in [(&theirs, true), (&ours, false)] {
            let mut primary = Primary::writing(LEASE_NS, 0, true);
            primary.connected();
            say(&mut primary, Frame::Follow { standby: 7, journal: 5, end: theirs.end() as u64 }, journal);
            let mut bytes = Vec::new();
            Frame::Memory { address: 1 << 40, rkey: 9, len: 4_096, end, last }.emit(&mut bytes);
            assert_eq!(primary.receive(&bytes, journal).is_ok(), is_admitted);
            assert_eq!(primary.take_memory().is_some(), is_admitted);
        }
    }

    /// How many words there are for the standby that the primary lives, where they are all.
    fn alive(primary: &mut Primary) -> usize {
        let mut count = 0;
        take_frames(&mut primary.to_send().to_vec(), |frame| {
            count += 1;
            assert_eq!(frame, Frame::Alive, "a standby that has promised nothing takes nothing over");
            Ok(())
        })
        .expect("whole frames");
        primary.sent(primary.to_send().len());
        count
    }

    /// A mirror ends a connection that is silent.
    #[test]
    fn primary_that_asks_for_no_grants_says_each_second_that_it_lives() {
        let mut journal = journal();
        let before = journal.end();
        journal.append(11, order_entry::journal::Stamp::default(), b"an order").expect("room for a record");
        for (is_fenced, has) in [(false, journal.end()), (false, before), (true, before)] {
            let mut primary = Primary::writing(LEASE_NS, 0, is_fenced);
            followed(&mut primary, &journal);
            for at_ns in [1, ALIVE_NS, ALIVE_NS + 1, 2 * ALIVE_NS] {
                assert_eq!(primary.poll(at_ns, &journal), None);
            }
            say(&mut primary, Frame::Ready, &journal);
            primary.wrote(journal.end(), has);
            assert_eq!(alive(&mut primary), 1, "its connection takes nothing");
            for (at_ns, count) in [(3 * ALIVE_NS, 1), (4 * ALIVE_NS - 1, 0), (4 * ALIVE_NS, 1)] {
                assert_eq!(primary.poll(at_ns, &journal), None);
                assert_eq!(alive(&mut primary), count, "at {at_ns}");
            }
        }
    }

    #[test]
    fn primary_that_goes_on_without_its_mirror_asks_for_no_grants() {
        let (journal, mut primary) = (journal(), Primary::writing(LEASE_NS, 0, false));
        assert!(primary.may_send(1));
        followed(&mut primary, &journal);
        say(&mut primary, Frame::Ready, &journal);
        primary.wrote(journal.end(), journal.end());
        assert_eq!(primary.poll(u64::MAX / 2, &journal), None);
        alive(&mut primary);
        assert!(primary.may_send(u64::MAX / 2));
    }

    /// Its grants would end, and it would take over without the records.
    #[test]
    fn primary_that_goes_on_asks_no_mirror_for_grants_that_its_journal_names() {
        let (journal, mut primary) = (journal(), Primary::writing(LEASE_NS, 7, false));
        followed(&mut primary, &journal);
        say(&mut primary, Frame::Ready, &journal);
        assert_eq!(primary.poll(u64::MAX / 2, &journal), None);
        alive(&mut primary);
        assert!(!primary.may_send(u64::MAX / 2));
        primary.alone();
        assert!(primary.may_send(u64::MAX / 2));
    }

    /// It would be full in mid-day, and nothing more would be sent.
    #[test]
    fn mirror_with_less_memory_than_the_journal_has_is_refused_by_both_numbers() {
        let (journal, mut primary) = (journal(), Primary::writing(LEASE_NS, 0, true));
        let end = RdmaEnd { qpn: 1, psn: 1, mtu: 3, ip: Ipv4Addr::LOCALHOST };
        primary.connected();
        say(&mut primary, Frame::Follow { standby: 7, journal: 0, end: 0 }, &journal);
        let mut bytes = Vec::new();
        Frame::Memory { address: 1 << 40, rkey: 9, len: 4_095, end, last: LastRecord::default() }.emit(&mut bytes);
        let refusal = primary.receive(&bytes, &journal).expect_err("it is too small");
        assert!(refusal.contains("room for 4095 bytes, and the primary's has 4096"), "{refusal}");
        assert_eq!(primary.take_memory(), None);
        let told = Frame::parse(primary.to_send()).map(|frame| frame.map(|(frame, _)| frame));
        assert_eq!(told, Ok(Some(Frame::TooSmall { needed: 4_096 })));
    }

    #[test]
    fn standby_without_memory_of_that_kind_is_none_of_a_primary_that_sends_frames() {
        let (journal, mut primary) = (journal(), Primary::new(LEASE_NS, 0));
        primary.connected();
        let mut bytes = Vec::new();
        Frame::Ready.emit(&mut bytes);
        assert!(primary.receive(&bytes, &journal).is_err());
    }
}
