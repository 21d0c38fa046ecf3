//! Batches of records, and what their headers say.

use market_ring::{Flags, Record};

/// Bytes of a record in a batch: its number in the ring, and the record.
pub(crate) const ENTRY_LEN: usize = 8 + Record::LEN;

/// The number of the ring's stream, 16 digits; the ids of batches begin with it.
pub const SESSION: &str = "Wp-Session";
/// Numbers in the ring of the first and the last record.
pub const SEQ: &str = "Wp-Seq";
/// Numbers of the venue, of the first and the last record.
pub const VENUE_SEQ: &str = "Wp-Venue-Seq";
/// The exchange's time of the last record, and when it was received, ns.
pub const TIMES: &str = "Wp-Exchange-Receive-Ns";
/// When the publisher made the batch for the broker, ns since 1970: the same where it is sent
/// again.
pub const PUBLISHED: &str = "Wp-Publish-Ns";
/// All flags of the records, as their bits.
pub const FLAGS: &str = "Wp-Flags";
/// All records of the channel between these numbers in the ring, first and last, are in the batch.
/// A consumer that has not had those before the first has missed something: the ring had
/// overwritten it, a publisher was not there, or the broker has lost it.
pub const COVERS: &str = "Wp-Covers";

/// The batch is the channel's last of this session: nothing follows its records.
pub const END: &str = "Wp-End";
/// Of a quote: the changes that were never sent.
pub const MERGED: &str = "Wp-Merged";

/// A batch of one channel that is being filled.
#[derive(Clone, Debug)]
pub(crate) struct OpenBatch {
    channel: u16,
    /// All records of the channel from this one on, or none, are in the batch.
    from: u64,
    /// Records before `from` were missed, which no batch has said yet.
    has_skipped: bool,
    payload: Vec<u8>,
    seq: (u64, u64),
    venue_seq: (u64, u64),
    times: (u64, u64),
    flags: u8,
}

/// A whole batch, as it is sent, and sent again.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The channel of its records.
    pub channel: u16,
    /// Session, channel and numbers: the same for the same batch, and no other batch has it.
    pub id: String,
    /// Names and values.
    pub headers: Vec<(&'static str, String)>,
    /// For each record its number in the ring, 8 bytes little-endian, and
    /// [`Record::to_bytes`].
    pub payload: Vec<u8>,
    /// The number of its first record in the ring.
    pub(crate) first: u64,
    pub(crate) is_acknowledged: bool,
}

impl OpenBatch {
    /// A batch of a channel, all of whose records from `from` on are to be in it.
    pub(crate) fn new(channel: u16, from: u64) -> Self {
        let (seq, venue_seq, times) = ((0, 0), (0, 0), (0, 0));
        Self { channel, from, has_skipped: false, payload: Vec::new(), seq, venue_seq, times, flags: 0 }
    }

    pub(crate) fn push(&mut self, seq: u64, record: &Record) {
        if self.payload.is_empty() {
            (self.seq.0, self.venue_seq.0) = (seq, record.venue_seq);
        }
        (self.seq.1, self.venue_seq.1) = (seq, record.venue_seq);
        self.times = (record.exchange_ns(), record.receive_ns);
        let Flags(bits) = record.flags;
        self.flags |= bits;
        self.payload.extend_from_slice(&seq.to_le_bytes());
        self.payload.extend_from_slice(&record.to_bytes());
    }

    pub(crate) fn records(&self) -> usize {
        self.payload.len() / ENTRY_LEN
    }

    /// Records before this number are not to be had any more; the batch is empty.
    pub(crate) fn skip_to(&mut self, from: u64) {
        (self.from, self.has_skipped) = (from, true);
    }

    /// Ends the batch: all records of the channel from its first to before `until` are in it.
    /// `None` where it would say nothing.
    pub(crate) fn take(&mut self, session: u64, until: u64) -> Option<Batch> {
        if self.payload.is_empty() && !self.has_skipped {
            return None;
        }
        Some(core::mem::replace(self, Self::new(self.channel, until)).seal(session, until))
    }

    /// The channel's last batch of the session, which says that nothing follows.
    pub(crate) fn end(self, session: u64, until: u64) -> Batch {
        let mut batch = self.seal(session, until);
        batch.id = format!("{session:016x}-{}-end", batch.channel);
        batch.headers.push((END, "1".to_owned()));
        batch
    }

    fn seal(self, session: u64, until: u64) -> Batch {
        let Self { channel, from, has_skipped: _, payload, seq, venue_seq, times, flags } = self;
        let pair = |(first, last): (u64, u64)| format!("{first}-{last}");
        let name = if payload.is_empty() { from.to_string() } else { pair(seq) };
        let id = format!("{session:016x}-{channel}-{name}");
        let mut headers = vec![(SESSION, format!("{session:016x}")), (COVERS, pair((from, until.saturating_sub(1))))];
        if !payload.is_empty() {
            headers.extend([
                (SEQ, name),
                (VENUE_SEQ, pair(venue_seq)),
                (TIMES, pair(times)),
                (FLAGS, flags.to_string()),
            ]);
        }
        let first = if payload.is_empty() { from } else { seq.0 };
        Batch { channel, id, headers, payload, first, is_acknowledged: false }
    }
}

impl Batch {
    /// The batch with the time at which it was made.
    pub(crate) fn published_at(mut self, utc_ns: u64) -> Self {
        self.headers.push((PUBLISHED, utc_ns.to_string()));
        self
    }
}

/// Two numbers of a header.
pub(crate) fn parse_pair(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// The records of a body, with their numbers; `None` for one that is none.
pub(crate) fn entries(payload: &[u8]) -> impl Iterator<Item = Option<(u64, Record)>> {
    let (chunks, rest) = payload.as_chunks::<ENTRY_LEN>();
    let entries = chunks.iter().map(|chunk| {
        let (seq, record) = chunk.split_first_chunk()?;
        Some((u64::from_le_bytes(*seq), Record::from_bytes(record.try_into().ok()?)?))
    });
    entries.chain((!rest.is_empty()).then_some(None))
}

#[cfg(test)]
mod tests {
    use market::event::{Clear, Event};

    use super::*;

    #[test]
    fn headers_have_the_times_of_exchange_arrival_and_publishing() {
        let record = Record { receive_ns: 20, ..Record::new(7, Event::Clear(Clear { at_ns: 10 })) };
        let mut filling = OpenBatch::new(3, 0);
        filling.push(5, &record);
        let batch = filling.take(1, 6).unwrap().published_at(30);
        let header = |name: &str| batch.headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str());
        assert_eq!((header(TIMES), header(PUBLISHED)), (Some("10-20"), Some("30")));
    }
}
