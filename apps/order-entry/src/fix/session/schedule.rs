//! When a session is open: each day or each week, in UTC.

const DAY_NS: u64 = 86_400_000_000_000;
const WEEK_NS: u64 = 7 * DAY_NS;
/// From the Monday before 1970 to its first of January, a Thursday.
const MONDAY_NS: u64 = 3 * DAY_NS;

/// A span of each day or of each week. Numbers begin with each span anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    period_ns: u64,
    /// From the epoch back to a beginning of a period.
    origin_ns: u64,
    /// From the beginning of a span to its end.
    open_ns: u64,
}

impl Schedule {
    /// Each day from `start_s` to `end_s`, seconds of the UTC day. An end at or before the start is
    /// on the day after.
    pub const fn daily(start_s: u32, end_s: u32) -> Self {
        let (start, end) = (start_s as u64 % 86_400, end_s as u64 % 86_400);
        let open_s = if end > start { end - start } else { end + 86_400 - start };
        Self { period_ns: DAY_NS, origin_ns: DAY_NS - start * 1_000_000_000, open_ns: open_s * 1_000_000_000 }
    }

    /// Each week from a day and second to another; day 0 is Monday. An end at or before the start
    /// is in the week after.
    pub const fn weekly(start: (u32, u32), end: (u32, u32)) -> Self {
        const WEEK_S: u64 = 7 * 86_400;
        let start = (start.0 as u64 * 86_400 + start.1 as u64) % WEEK_S;
        let end = (end.0 as u64 * 86_400 + end.1 as u64) % WEEK_S;
        let open_s = if end > start { end - start } else { end + WEEK_S - start };
        let origin_ns = MONDAY_NS + WEEK_NS - start * 1_000_000_000;
        Self { period_ns: WEEK_NS, origin_ns, open_ns: open_s * 1_000_000_000 }
    }

    /// From the beginning of a span to that of the next.
    pub(super) const fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// Which span `utc_ns` is in; `None` where it is in none.
    pub const fn span(&self, utc_ns: u64) -> Option<u64> {
        let since = utc_ns.saturating_add(self.origin_ns);
        if since % self.period_ns < self.open_ns { Some(since / self.period_ns) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fix::codec::parse_utc;

    fn at(text: &str) -> u64 {
        parse_utc(text.as_bytes()).unwrap()
    }

    #[test]
    fn day_over_midnight_is_one_span() {
        let schedule = Schedule::daily(22 * 3600, 21 * 3600);
        let evening = schedule.span(at("20261126-22:00:00")).unwrap();
        assert_eq!(schedule.span(at("20261127-20:59:59")), Some(evening));
        assert_eq!(schedule.span(at("20261127-21:30:00")), None);
        assert_eq!(schedule.span(at("20261127-22:00:00")), Some(evening + 1));
    }

    #[test]
    fn week_is_one_span_from_sunday_to_friday() {
        let schedule = Schedule::weekly((6, 22 * 3600), (4, 21 * 3600));
        // A Sunday evening.
        let sunday = schedule.span(at("20261122-22:00:00")).unwrap();
        assert_eq!(schedule.span(at("20261127-20:59:59")), Some(sunday));
        assert_eq!(schedule.span(at("20261127-21:00:00")), None);
        assert_eq!(schedule.span(at("20261129-21:59:59")), None);
        assert_eq!(schedule.span(at("20261129-22:00:00")), Some(sunday + 1));
    }
}
