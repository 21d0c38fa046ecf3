//! The summary for people: the important part first, numbers in columns, zeros only where they are
//! needed.

use std::fmt;

use wirepath::time::Duration;

use super::limits::limits;
use super::{ChannelSummary, Summary, TopSummary};

/// Rows of aligned columns. The first column is text and aligned left, the others are numbers and
/// aligned right.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(ToString::to_string).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            write!(f, "  ")?;
            for (idx, (cell, width)) in row.iter().zip(&widths).enumerate() {
                match idx {
                    0 => write!(f, "{cell:<width$}")?,
                    _ => write!(f, "  {cell:>width$}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// A number with commas between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A rate with the unit that fits.
pub(crate) fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{:.2} M/s", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k/s", rate / 1e3),
        rate => format!("{rate:.0} /s"),
    }
}

fn yes(holds: bool) -> &'static str {
    if holds { "ok" } else { "WRONG" }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_head(f)?;
        self.write_packets(f)?;
        self.channels.iter().try_for_each(|channel| write_channel(channel, f))?;
        self.write_types(f)?;
        self.write_books(f)?;
        self.write_latency(f)?;
        self.write_truth(f)
    }
}

impl Summary {
    fn write_head(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = match (self.core.number, self.core.chosen) {
            (None, _) => "not pinned".to_owned(),
            (Some(core), true) => format!("core {core}, the last that is ours (--cpu for another)"),
            (Some(core), false) => format!("core {core}"),
        };
        writeln!(f, "{}: {}", self.file, self.format)?;
        writeln!(
            f,
            "  {} packets, {} messages in {:.3} s: {} packets, {} messages; {core}",
            grouped(self.packets),
            grouped(self.messages),
            self.seconds,
            rate(self.packets_per_second),
            rate(self.messages_per_second),
        )?;
        if let Some(place) = &self.truncation {
            writeln!(f, "  truncated: the file is {place}; what is before was read")?;
        }
        if self.stopped {
            writeln!(f, "  stopped by a signal before the end of the file")?;
        }
        if let Some(captured) = self.captured {
            writeln!(f, "  {} frames captured", grouped(captured))?;
        }
        Ok(())
    }

    fn write_packets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = &self.packet_account;
        writeln!(f, "\npackets")?;
        let came = if self.live { "came to our queues" } else { "read from the file" };
        let mut table = Table::new(&[came, &grouped(account.read)]);
        let mut add = |what: &str, count: u64| {
            if count > 0 {
                table.row([what.to_owned(), grouped(count)]);
            }
        };
        add("+ copied by injected faults", account.duplicated);
        add("+ ICMP errors from the kernel", account.icmp_errors_from_kernel);
        add("= delivered to the feed", account.delivered);
        add("+ ARP, ICMP and IGMP of our host", account.answered);
        for (reason, &count) in &self.drops {
            add(&format!("+ dropped: {reason}"), count);
        }
        add("+ merged into datagrams from fragments", account.merged);
        add("+ held", account.held);
        write!(f, "{table}")?;
        let dropped = if account.dropped == 0 { "; none dropped" } else { "" };
        writeln!(f, "  received = delivered + drops + held: {}{dropped}", yes(account.holds()))?;
        for (reason, &count) in &self.not_sent {
            writeln!(f, "  {} not sent: {reason}", grouped(count))?;
        }
        for sentence in limits(self) {
            writeln!(f, "  {sentence}")?;
        }
        if self.partial_checksums > 0 {
            let count = grouped(self.partial_checksums);
            let from = if self.live { "from a stack on this machine" } else { "taken on the sending host" };
            writeln!(f, "  {count} {from}: their UDP checksums are of the pseudo header only")?;
        }
        self.write_refused_messages(f)?;
        self.write_messages(f)
    }

    /// Messages that were not decoded, not believed or not kept.
    fn write_refused_messages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let undecoded = self.undecoded.total();
        if undecoded > self.undecoded.undefined {
            writeln!(
                f,
                "  messages not decoded: {} of unknown type, {} of wrong length, {} empty",
                grouped(self.undecoded.unknown_type),
                grouped(self.undecoded.wrong_length),
                grouped(self.undecoded.empty)
            )?;
        }
        if self.undecoded.undefined > 0 {
            let count = grouped(self.undecoded.undefined);
            writeln!(f, "  messages not decoded: {count} about instruments whose definition has not arrived")?;
        }
        if self.undecoded.lost_to_books > 0 {
            let count = grouped(self.undecoded.lost_to_books);
            writeln!(
                f,
                "  {count} of these are of the books, which all lack them: the books of their channel are stale"
            )?;
        }
        if self.message_account.doubted > 0 {
            let count = grouped(self.message_account.doubted);
            writeln!(
                f,
                "  {count} messages doubted: no second packet confirmed their session or numbers, so they are damaged or forged"
            )?;
        }
        if self.message_account.past > 0 {
            let count = grouped(self.message_account.past);
            writeln!(f, "  {count} messages of the time before a restart came after it and are not delivered")?;
        }
        if self.message_account.not_kept > 0 {
            let count = grouped(self.message_account.not_kept);
            writeln!(
                f,
                "  {count} messages not kept for their turn, as no buffer was to spare: raise worker.buffers; a datagram that came \
                 in fragments takes one for each"
            )?;
        }
        Ok(())
    }

    /// The sum of messages, with its parts.
    fn write_messages(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = &self.message_account;
        write!(f, "  messages: received = delivered + duplicates + late")?;
        for (what, count) in [("past", account.past), ("doubted", account.doubted), ("not kept", account.not_kept)] {
            if count > 0 {
                write!(f, " + {what}")?;
            }
        }
        writeln!(f, ": {}", yes(account.holds()))
    }

    fn write_types(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const IN_A_LINE: usize = 8;
        if self.by_type.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nmessages by type")?;
        let cells: Vec<String> =
            self.by_type.iter().map(|(kind, &count)| format!("{kind} {}", grouped(count))).collect();
        cells.chunks(IN_A_LINE).try_for_each(|cells| writeln!(f, "  {}", cells.join("   ")))
    }

    fn write_books(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let books = &self.books;
        if books.instruments == 0 && books.applied == 0 && books.unknown_orders == 0 {
            return Ok(());
        }
        writeln!(f, "\nbooks")?;
        let mut facts = vec![
            format!("{} instruments", grouped(books.instruments as u64)),
            format!("{} with a bid and an offer", grouped(books.two_sided as u64)),
            format!("{} updates", grouped(books.applied)),
        ];
        for (what, count) in [
            ("stale", books.stale as u64),
            ("unconfirmed", books.unconfirmed as u64),
            ("references to unknown orders", books.unknown_orders),
            ("repeated references", books.repeated_orders),
            ("orders without shares", books.empty_orders),
            ("beyond an order's size", books.beyond_size),
        ] {
            if count > 0 {
                facts.push(format!("{} {what}", grouped(count)));
            }
        }
        facts.extend(
            books.own_counts.iter().map(|(name, &count)| format!("{} {}", grouped(count), name.replace('_', " "))),
        );
        writeln!(f, "  {}", facts.join(", "))?;
        if books.refused > 0 {
            let refused = grouped(books.refused);
            writeln!(
                f,
                "  {refused} REFUSED for want of memory: the books that lack them are stale; raise [books] in the configuration"
            )?;
        }
        let mut tops = self.channels.iter().flat_map(|channel| &channel.books.tops).peekable();
        if tops.peek().is_none() {
            return Ok(());
        }
        let mut table = Table::new(&["symbol", "shares", "bid", "offer", "shares", ""]);
        tops.for_each(|top| table.row(top_cells(top)));
        write!(f, "{table}")
    }

    fn write_latency(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency = &self.latency_ns;
        let (Some(p50), Some(p99), Some(p999), Some(max)) = (latency.p50, latency.p99, latency.p999, latency.max)
        else {
            return Ok(());
        };
        let shown = |ns: u64| Duration::from_nanos(ns).to_string();
        writeln!(
            f,
            "\nlatency of a packet   p50 {}   p99 {}   p99.9 {}   max {}",
            shown(p50),
            shown(p99),
            shown(p999),
            shown(max)
        )?;
        writeln!(f, "  {};", latency.measures)?;
        writeln!(f, "  {} packets measured, one of {}", grouped(latency.samples), latency.every)
    }

    fn write_truth(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(truth) = &self.truth else { return Ok(()) };
        writeln!(f, "\ntruth: sent = received + injected losses, in messages")?;
        let mut table = Table::new(&["line", "sent", "+ duplicated", "= received", "+ lost", ""]);
        for line in &truth.lines {
            let numbers = [line.sent, line.duplicated, line.received, line.lost].map(grouped);
            let name = format!("{} {}", line.name, line.group);
            table.row([name].into_iter().chain(numbers).chain([yes(line.holds()).to_owned()]));
        }
        let both = [grouped(truth.sent), String::new(), grouped(truth.delivered), grouped(truth.lost_on_both)];
        let holds = yes(truth.delivered <= truth.sent && truth.sent <= truth.delivered + truth.lost_on_both).to_owned();
        table.row(["both, each once".to_owned()].into_iter().chain(both).chain([holds]));
        write!(f, "{table}")?;
        let missed: u64 = self.channels.iter().flat_map(|channel| &channel.lines).map(|line| line.lost).sum();
        let copies = truth.lines.iter().map(|line| line.lost).sum::<u64>().saturating_sub(missed);
        if copies > 0 {
            let what =
                "of the lost were in packets sent twice whose other copy arrived: above, their line has not lost them";
            writeln!(f, "  {} {what}", grouped(copies))?;
        }
        let tops = match truth.tops_agree {
            Some(agree) => format!("; top of every book: {}", yes(agree)),
            None => String::new(),
        };
        writeln!(f, "  gaps are what was lost on both lines: {}{tops}", yes(truth.gaps_agree))
    }
}

/// What servers brought, without what did not happen.
fn write_recovery(channel: &ChannelSummary, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(recovery) = &channel.recovery else { return Ok(()) };
    let facts: Vec<_> = [
        ("requests", recovery.requests),
        ("messages recovered", recovery.recovered),
        ("packets of the server without a missing message", recovery.unasked),
        ("holes unanswered", recovery.unanswered),
        ("holes too wide for requests", recovery.too_wide),
        ("images asked for", recovery.images_requested),
        ("images applied", recovery.images_applied),
        ("images refused", recovery.images_refused),
        ("images that did not come", recovery.images_failed),
        ("times whole again", recovery.images_completed),
        ("snapshots applied", recovery.snapshots_applied),
        ("of them books made anew", recovery.snapshots_adopted),
        ("snapshots refused", recovery.snapshots_refused),
        ("whole loops of snapshots", recovery.snapshot_loops),
        ("times that the loop was left", recovery.snapshots_completed),
        ("definitions", recovery.definitions),
        ("messages of loops not decoded", recovery.loops_undecoded),
        ("messages beyond the queue", recovery.queue_overflowed),
    ]
    .into_iter()
    .filter(|&(_, count)| count > 0)
    .map(|(what, count)| format!("{} {what}", grouped(count)))
    .collect();
    let facts = if facts.is_empty() { "nothing was asked for".to_owned() } else { facts.join(", ") };
    writeln!(f, "  recovery: {facts}")
}

fn write_channel(channel: &ChannelSummary, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let number = if channel.channel > 0 { format!(" channel {}", channel.channel) } else { String::new() };
    writeln!(f, "\nchannel {}{number}", channel.name)?;
    let mut facts = vec![format!("{} messages", grouped(channel.messages))];
    if let Some(seq) = channel.joined_at {
        facts.push(format!("joined late at {}, so its books are stale until they are rebuilt", grouped(seq)));
    }
    facts.push(match channel.gaps {
        0 => "no gap".to_owned(),
        gaps => format!("{} gap{} ({} messages)", grouped(gaps), plural(gaps), grouped(channel.missing)),
    });
    facts.push(format!("{} duplicates", grouped(channel.duplicates)));
    for (what, count) in [
        ("late", channel.late),
        ("past", channel.past),
        ("doubted", channel.doubted),
        ("restarts", channel.restarts),
        ("holes healed by another line", channel.healed_holes),
        ("holes closed by a late packet", channel.reordered_holes),
    ] {
        if count > 0 {
            facts.push(format!("{} {what}", grouped(count)));
        }
    }
    writeln!(f, "  {}", facts.join(", "))?;
    write_recovery(channel, f)?;
    write_gaps(channel, f)?;
    let mut table =
        Table::new(&["line", "packets", "heartbeats", "messages", "first", "healed", "duplicates", "gaps", "lost"]);
    for line in &channel.lines {
        let numbers = [
            line.packets,
            line.heartbeats,
            line.messages,
            line.first,
            line.healed,
            line.duplicates,
            line.gaps,
            line.lost,
        ];
        table.row([format!("{} {}", line.name, line.group)].into_iter().chain(numbers.map(grouped)));
    }
    write!(f, "{table}")
}

fn write_gaps(channel: &ChannelSummary, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const LISTED: usize = 8;
    if channel.gap_ranges.is_empty() {
        return Ok(());
    }
    let shown = channel.gap_ranges.iter().take(LISTED).map(|&(first, last)| {
        let before = if first == 1 { " (before the first packet)" } else { "" };
        if first == last { format!("{first}{before}") } else { format!("{first}-{last}{before}") }
    });
    let mut text = shown.collect::<Vec<_>>().join(", ");
    let more = channel.gaps.saturating_sub(LISTED as u64);
    if more > 0 {
        text += &format!(" and {} more", grouped(more));
    }
    writeln!(f, "  missing: {text}")
}

fn top_cells(top: &TopSummary) -> [String; 6] {
    let price = |price: &Option<String>| price.clone().unwrap_or_else(|| "-".to_owned());
    let shares = |shares: u64| if shares > 0 { grouped(shares) } else { "-".to_owned() };
    [
        top.symbol.clone(),
        shares(top.bid_shares),
        price(&top.bid),
        price(&top.ask),
        shares(top.ask_shares),
        if top.stale { "stale".to_owned() } else { String::new() },
    ]
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["line", "messages"]);
        table.row(["A 239.1.1.1:1".to_owned(), "7".to_owned()]);
        assert_eq!(table.to_string(), "  line           messages\n  A 239.1.1.1:1         7\n");
    }
}
