//! The bytes of messages, which the receiving end compares: a byte that is lost, torn or at another
//! place is found, and so is memory that nobody has written.

use ::rdma::cable::Carrier;
use ::rdma::roce::Buffer;

use super::Service;

/// Messages in a row that have different bytes, where they are not too long for it.
const MESSAGES: usize = 16;
const LONG: usize = 4 << 20;
/// That of the memory which a peer reads, and writes to.
pub(super) const OFFERED: u8 = 0x80;

/// What the program at an end says to one of its own, in a field that others send as 0 and ignore:
/// only such peers send what [`Pattern`] expects. The lower bits are a [`Mark`].
const MARK: u16 = 0x5700;
const MARK_MASK: u32 = 0x7f;

/// What an end says to one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// What is going to be done, below 8.
    pub(super) what: u8,
    /// Over which service, of a test of one verb.
    pub(super) service: Service,
    /// What is to carry the packets.
    pub(super) carrier: Carrier,
}

/// The services by their numbers in a mark, behind 0, which is none.
const SERVICES: [Service; 3] = [Service::Ud, Service::Rc, Service::Uc];

/// The carriers by their numbers in a mark.
const CARRIERS: [Carrier; 3] = [Carrier::RoceV2, Carrier::SharedMemory, Carrier::FramedTcp];

/// The mark, with what is going to be done over what. A shared receive queue is no matter of the
/// peer's.
pub(super) fn mark(what: u8, service: Service, carrier: Carrier) -> u16 {
    let number = CARRIERS.iter().position(|known| *known == carrier).unwrap_or(0);
    let service = SERVICES.iter().position(|known| *known == service).unwrap_or(1) + 1;
    MARK | (service as u16) << 5 | (number as u16) << 3 | u16::from(what & 7)
}

/// What a peer of ours says; `None` of another program.
pub(super) fn marked(field: u32) -> Option<Mark> {
    let bits = (field & !MARK_MASK == u32::from(MARK)).then_some(field & MARK_MASK)?;
    let service = *SERVICES.get(((bits >> 5) as usize).checked_sub(1)?)?;
    Some(Mark { what: (bits & 7) as u8, service, carrier: *CARRIERS.get((bits >> 3 & 3) as usize)? })
}

/// The bytes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern(u8);

impl Pattern {
    /// Those of the message with this number, of so many bytes.
    pub(super) const fn of(number: u64, len: usize) -> Self {
        Self((number % messages(len) as u64) as u8)
    }

    /// Those that begin so.
    const fn beginning_with(byte: u8) -> Self {
        // The inverse of 37 modulo 256.
        Self(byte.wrapping_sub(1).wrapping_mul(173))
    }

    /// Those of the message in memory, of which it is not known how many before it were lost.
    pub(super) fn found(memory: &Buffer, at: usize) -> Result<Self, String> {
        let mut first = [0];
        memory.read(at, &mut first);
        let found = Self::beginning_with(first[0]);
        let is_known = usize::from(found.0) < MESSAGES;
        if is_known { Ok(found) } else { Err(format!("byte 0 is {:#04x}, with which no message begins", first[0])) }
    }

    /// Other bytes, by a number of their own.
    pub(super) const fn named(name: u8) -> Self {
        Self(name)
    }

    const fn byte(self, at: usize) -> u8 {
        self.0.wrapping_mul(37).wrapping_add(1).wrapping_add((at * 7 + (at >> 8) * 13) as u8)
    }

    /// Writes the message.
    pub(super) fn fill(self, memory: &Buffer, at: usize, len: usize) {
        let bytes: Vec<u8> = (0..len).map(|at| self.byte(at)).collect();
        memory.write(at, &bytes);
    }

    /// Writes what no message has at any place.
    pub(super) fn spoil(self, memory: &Buffer, at: usize, len: usize) {
        let bytes: Vec<u8> = (0..len).map(|at| !self.byte(at)).collect();
        memory.write(at, &bytes);
    }

    /// Compares; the first byte that is another, in words.
    pub(super) fn compare(self, memory: &Buffer, at: usize, len: usize) -> Result<u64, String> {
        let mut bytes = vec![0; len];
        memory.read(at, &mut bytes);
        match (0..len).find(|&at| bytes[at] != self.byte(at)) {
            None => Ok(len as u64),
            Some(at) => {
                let (found, sent) = (bytes[at], self.byte(at));
                Err(format!("byte {at} of {len} is {found:#04x}, and was sent as {sent:#04x}"))
            }
        }
    }

    /// Compares memory that was as [`OFFERED`] and that messages were written to, each from its
    /// beginning on; the bytes that are of one.
    pub(super) fn compare_written(memory: &Buffer, len: usize) -> Result<u64, String> {
        let mut bytes = vec![0; len];
        memory.read(0, &mut bytes);
        let (written, before) = (Self::beginning_with(bytes[0]), Self::named(OFFERED));
        if usize::from(written.0) >= MESSAGES {
            return Err("nothing was written at the beginning of the memory".to_owned());
        }
        let count = (0..len).find(|&at| bytes[at] != written.byte(at)).unwrap_or(len);
        match (count..len).find(|&at| bytes[at] != before.byte(at)) {
            None => Ok(count as u64),
            Some(at) => Err(format!("byte {at} of the memory is {:#04x}, and nobody has sent it", bytes[at])),
        }
    }
}

/// Messages of this length in a row that have different bytes: as many are kept in memory.
pub(super) const fn messages(len: usize) -> usize {
    if len > LONG { 1 } else { MESSAGES }
}

/// What was compared, in words.
pub(super) fn verified(bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{bytes} bytes verified"),
        None => "no bytes verified: the peer is another program".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 3000;

    #[test]
    fn byte_at_another_place_of_another_message_or_never_written_is_found() {
        let memory = Buffer::zeroed(2 * LEN);
        let (ours, other) = (Pattern::of(3, LEN), Pattern::of(4, LEN));
        assert_ne!(ours, other);
        ours.fill(&memory, 0, LEN);
        assert_eq!(ours.compare(&memory, 0, LEN), Ok(LEN as u64));
        assert!(other.compare(&memory, 0, LEN).is_err());
        assert_eq!(ours.compare(&memory, 1, LEN - 1).unwrap_err(), "byte 0 of 2999 is 0x77, and was sent as 0x70");
        assert_eq!(Pattern::found(&memory, 0), Ok(ours));
        ours.spoil(&memory, 0, LEN);
        assert!(Pattern::found(&memory, 0).is_err(), "nobody has sent it");
        ours.fill(&memory, 0, LEN - 1);
        assert!(ours.compare(&memory, 0, LEN).unwrap_err().starts_with("byte 2999 of 3000"));
        assert_eq!(Pattern::beginning_with(ours.byte(0)), ours);
    }

    #[test]
    fn memory_has_the_last_message_and_behind_it_what_it_had_before() {
        let memory = Buffer::zeroed(LEN);
        Pattern::named(OFFERED).fill(&memory, 0, LEN);
        Pattern::of(7, LEN).fill(&memory, 0, 1000);
        assert_eq!(Pattern::compare_written(&memory, LEN), Ok(1000));
        Pattern::named(OFFERED).fill(&memory, 0, LEN);
        assert!(Pattern::compare_written(&memory, LEN).is_err(), "nobody has written");
        Pattern::of(7, LEN).fill(&memory, 0, 1000);
        for at in [500, 1000, 2999] {
            let mut before = [0];
            memory.read(at, &mut before);
            memory.write(at, &[before[0] ^ 1]);
            let why = Pattern::compare_written(&memory, LEN).unwrap_err();
            assert!(why.starts_with(&format!("byte {at} of the memory")), "{why}");
            memory.write(at, &before);
        }
    }

    #[test]
    fn mark_is_no_number_that_another_program_sends() {
        for (carrier, service) in CARRIERS.into_iter().flat_map(|carrier| SERVICES.map(|service| (carrier, service))) {
            assert_eq!(marked(mark(3, service, carrier).into()), Some(Mark { what: 3, service, carrier }));
        }
        assert_eq!(mark(3, Service::Srq, Carrier::RoceV2), mark(3, Service::Rc, Carrier::RoceV2));
        let others = [0, 0x15_7543, 0x575f, 0x5703];
        assert_eq!(others.map(marked), [None; 4], "nothing, too high, no such carrier, no such service");
    }
}
