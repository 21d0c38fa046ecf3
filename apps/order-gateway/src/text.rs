//! A journal as text.

use std::io::{self, Write};

use order_entry::journal::{Entry, JournalError, Records};

/// Writes a line of CSV for each record: its number, when it was appended, and what it says. The
/// names in it are those of this program, and symbols are escaped, so no terminal obeys them.
pub fn journal_csv(memory: &[u8], mut out: impl Write) -> Result<io::Result<()>, JournalError> {
    let records = Records::new(memory)?;
    let mut write = || {
        writeln!(out, "number,ns,entry")?;
        for record in records.clone() {
            let entry = Entry::decode(record.kind, record.payload);
            let text = entry.map_or_else(|| format!("unknown kind {}", record.kind), |entry| format!("{entry:?}"));
            let text = text.escape_default().to_string().replace("\\\"", "\"\"");
            writeln!(out, "{},{},\"{text}\"", record.seq, record.stamp.at_ns)?;
        }
        Ok(())
    };
    Ok(write())
}
