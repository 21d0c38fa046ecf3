//! A journal and times as text.

use std::io::{self, Write};

use order_entry::ReasonCodes;
use order_entry::fix::codec::{Precision, UtcText};
use order_entry::journal::{Entry, JournalError, Record, Records};

/// Writes a line of CSV for each record: its number, when it was appended, and what it says. The
/// names in it are those of this program, and symbols are escaped, so no terminal obeys them. With
/// `codes`, those of the journal's venue, reasons have their names too.
pub fn journal_csv(
    memory: &[u8],
    codes: Option<ReasonCodes>,
    mut out: impl Write,
) -> Result<io::Result<()>, JournalError> {
    let records = Records::new(memory)?;
    let mut write = || {
        writeln!(out, "number,ns,entry")?;
        for record in records.clone() {
            let text = text_of(&record, codes).escape_default().to_string().replace("\\\"", "\"\"");
            writeln!(out, "{},{},\"{text}\"", record.seq, record.stamp.at_ns)?;
        }
        Ok(())
    };
    Ok(write())
}

/// What a record says. Behind a message that could not be read stand its bytes.
fn text_of(record: &Record<'_>, codes: Option<ReasonCodes>) -> String {
    match Entry::decode(record.kind, record.payload) {
        Some(entry @ Entry::Unread { .. }) => {
            let bytes = record.payload.get(entry.encode().len()..).unwrap_or_default();
            format!("{entry:?} {}", bytes.escape_ascii())
        }
        Some(entry @ Entry::Answer { event, .. }) => {
            let name = codes.and_then(|codes| codes.name(&event)).map_or_else(String::new, |name| format!(" {name}"));
            format!("{entry:?}{name}")
        }
        Some(entry) => format!("{entry:?}"),
        None => format!("unknown kind {}", record.kind),
    }
}

/// A time since 1970 for people.
pub(crate) fn utc(ns: u64) -> String {
    format!("{} UTC", String::from_utf8_lossy(UtcText::new(Precision::Millis).write(ns)))
}
