//! Batches of records, and what their headers say.

use market_ring::{Flags, Record};

/// Bytes of a record in a batch: its number in the ring, and the record.
pub(crate) const ENTRY_LEN: usize = 8 + Record::LEN;

/// The number of the ring's stream, 16 digits; the message ids begin with it.
pub(crate) const SESSION: &str = "Wp-Session";
/// Numbers in the ring of the first and the last record.
pub(crate) const SEQ: &str = "Wp-Seq";
/// Numbers of the venue, of the first and the last record.
pub(crate) const VENUE_SEQ: &str = "Wp-Venue-Seq";
/// The exchange's time of the last record, and when it was received, ns.
pub(crate) const TIMES: &str = "Wp-Exchange-Receive-Ns";
/// All flags of the records, as their bits.
pub(crate) const FLAGS: &str = "Wp-Flags";
/// Records that this publisher has missed before this batch: the first and the last.
pub(crate) const MISSED: &str = "Wp-Missed";

/// A batch of one channel that is being filled.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenBatch {
    payload: Vec<u8>,
    seq: (u64, u64),
    venue_seq: (u64, u64),
    times: (u64, u64),
    flags: u8,
}

/// A whole batch, as it is sent, and sent again.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) subject: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) payload: Vec<u8>,
    pub(crate) is_acknowledged: bool,
}

impl OpenBatch {
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

    /// Ends the batch, if there is anything in it.
    pub(crate) fn take(&mut self, subject: &str, session: u64, missed: Option<(u64, u64)>) -> Option<Batch> {
        if self.payload.is_empty() {
            return None;
        }
        let Self { payload, seq, venue_seq, times, flags } = core::mem::take(self);
        let pair = |(first, last): (u64, u64)| format!("{first}-{last}");
        let mut headers = vec![
            ("Nats-Msg-Id", format!("{session:016x}-{}", pair(seq))),
            (SESSION, format!("{session:016x}")),
            (SEQ, pair(seq)),
            (VENUE_SEQ, pair(venue_seq)),
            (TIMES, pair(times)),
            (FLAGS, flags.to_string()),
        ];
        headers.extend(missed.map(|missed| (MISSED, pair(missed))));
        Some(Batch { subject: subject.to_owned(), headers, payload, is_acknowledged: false })
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
