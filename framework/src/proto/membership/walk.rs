//! The walk over a reporter's groups: finds due records and packs them into reports, a bounded step
//! at a time. It may stop in the middle of a group whose records fill more than one report, and
//! continues there.

use arrayvec::ArrayVec;

use super::Reporter;
use super::groups::{QueryScope, Source};
use super::report::Announcement;
use crate::proto::source_filter::FilterMode;
use crate::time::{Duration, Instant};
use crate::wire::IgmpVersion;
use crate::wire::igmp::RecordKind;

/// Longest interval until a change is reported again (RFC 3376 8.11).
const UNSOLICITED_INTERVAL: Duration = Duration::from_secs(1);
/// The same in versions 1 and 2 (RFC 2236 8.10).
const UNSOLICITED_INTERVAL_OLD: Duration = Duration::from_secs(10);
/// Groups that one call of [`Reporter::next`] checks: 1 µs of loads. Fewer would split the reports
/// of many groups needlessly, because an Ethernet frame holds 183 records.
const SLOTS_PER_CALL: usize = 256;

/// One walk over all groups, in one or several calls.
#[derive(Debug)]
pub(super) struct WalkState {
    pub(super) is_running: bool,
    pub(super) place: u32,
    /// The number of complete records of this entry's group, and of sources of the record that is
    /// not complete.
    pub(super) part: usize,
    pub(super) reported: usize,
    /// The general query of version 3 is due.
    is_general: bool,
    spread: Option<Duration>,
    /// The time at which the changes of this walk are reported again: drawn once, so that they are
    /// packed together again.
    repeat_at: Instant,
    /// The first deadline after this walk.
    pub(super) earliest: Instant,
}

impl WalkState {
    pub(super) const IDLE: Self = Self {
        is_running: false,
        place: 0,
        part: 0,
        reported: 0,
        is_general: false,
        spread: None,
        repeat_at: Instant::MAX,
        earliest: Instant::MAX,
    };
}

/// The outcome for one group.
enum GroupOutcome {
    /// Its records are complete.
    Done,
    /// The report is full, and records remain.
    Full,
    /// A separate message, in versions 1 and 2.
    Old(Announcement<'static>),
}

/// The sources of a group that a record names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// The sources of the filter.
    Listed,
    /// Sources that are wanted since a change.
    Allowed,
    /// Sources that are no longer wanted since a change.
    Blocked,
    /// Sources of a query that are wanted.
    Queried,
}

impl Naming {
    fn names(self, mode: FilterMode, source: &Source) -> bool {
        let is_wanted = source.is_listed == (mode == FilterMode::Include);
        match self {
            Self::Listed => source.is_listed,
            Self::Allowed => source.repeats > 0 && is_wanted,
            Self::Blocked => source.repeats > 0 && !is_wanted,
            Self::Queried => source.is_queried && is_wanted,
        }
    }
}

impl Reporter {
    /// Continues the walk over the groups, until a report is full, a message is due or the step's
    /// bound is reached.
    #[cold]
    pub(super) fn walk(&mut self, now: Instant) -> Option<Announcement<'_>> {
        self.settle_version(now);
        if !self.round.is_running {
            self.begin_round(now);
        }
        self.report.clear();
        for _ in 0..SLOTS_PER_CALL {
            if self.round.place as usize == self.places() {
                self.end_round();
                break;
            }
            match self.visit(self.round.place, now) {
                GroupOutcome::Full => break,
                GroupOutcome::Done => self.step(),
                GroupOutcome::Old(message) => {
                    self.step();
                    return Some(message);
                }
            }
        }
        self.report.announcement()
    }

    fn begin_round(&mut self, now: Instant) {
        let is_general = self.general_at <= now;
        if is_general {
            self.general_at = Instant::MAX;
            self.general_answered = Some(now);
        }
        let repeat_at = now + self.draw(UNSOLICITED_INTERVAL);
        let spread = self.spread.take();
        self.round = WalkState { is_running: true, is_general, spread, repeat_at, ..WalkState::IDLE };
        self.wake = self.next_expiry(now);
    }

    fn step(&mut self) {
        self.round.place += 1;
        self.round.part = 0;
        self.round.reported = 0;
    }

    fn end_round(&mut self) {
        self.wake = self.wake.min(self.round.earliest).min(self.general_at);
        self.round = WalkState::IDLE;
    }

    fn visit(&mut self, place: u32, now: Instant) -> GroupOutcome {
        if self.groups.get(place).is_none() {
            return GroupOutcome::Done;
        }
        let visit = match self.version {
            IgmpVersion::V3 => self.visit_v3(place, now),
            _ => self.visit_old(place, now),
        };
        if let Some(group) = self.groups.get(place) {
            self.round.earliest = self.round.earliest.min(group.change_at).min(group.answer_at);
        }
        visit
    }

    fn visit_v3(&mut self, place: u32, now: Instant) -> GroupOutcome {
        let plan = self.plan(place, now);
        while let Some((kind, naming)) = plan.get(self.round.part) {
            if !self.tell(place, *kind, *naming) {
                return GroupOutcome::Full;
            }
            self.round.part += 1;
            self.round.reported = 0;
        }
        self.finish(place, now);
        GroupOutcome::Done
    }

    /// The records that are due for a group: a change (RFC 3376 5.1), then an answer (5.2).
    fn plan(&self, place: u32, now: Instant) -> ArrayVec<(RecordKind, Naming), 3> {
        let group = &self.groups[place];
        let is_include = group.mode == FilterMode::Include;
        let mut plan = ArrayVec::new();
        if group.change_at <= now {
            match group.mode_repeats {
                0 => {
                    plan.push((RecordKind::AllowNewSources, Naming::Allowed));
                    plan.push((RecordKind::BlockOldSources, Naming::Blocked));
                }
                _ if is_include => plan.push((RecordKind::ChangeToInclude, Naming::Listed)),
                _ => plan.push((RecordKind::ChangeToExclude, Naming::Listed)),
            }
        }
        if !group.is_member() {
            return plan;
        }
        let is_queried = group.answer_at <= now;
        if self.round.is_general || (is_queried && group.queried == QueryScope::Group) {
            let kind = if is_include { RecordKind::ModeIsInclude } else { RecordKind::ModeIsExclude };
            plan.push((kind, Naming::Listed));
        } else if is_queried {
            plan.push((RecordKind::ModeIsInclude, Naming::Queried));
        }
        plan
    }

    /// Puts a record into the report. False where the record, or the rest of it, has to go into the
    /// next report. A record that fits no report is split. An exclude record cannot be split: it is
    /// cut to the sources that fit, and the other sources are then let through (RFC 3376 4.2.16).
    fn tell(&mut self, place: u32, kind: RecordKind, naming: Naming) -> bool {
        let group = &self.groups[place];
        let sources = || {
            let named = self.groups.sources_of(place).filter(|source| naming.names(group.mode, source));
            named.map(|source| source.address)
        };
        let count = sources().count();
        if count == 0 && naming != Naming::Listed {
            return true;
        }
        let left = count - self.round.reported;
        let room = self.report.sources_room();
        if room.is_none_or(|room| room < left) && !self.report.is_empty() {
            return false;
        }
        let taken = left.min(room.unwrap_or(0));
        self.report.push(kind, group.address, sources().skip(self.round.reported).take(taken));
        if taken == left || matches!(kind, RecordKind::ChangeToExclude | RecordKind::ModeIsExclude) {
            return true;
        }
        self.round.reported += taken;
        false
    }

    /// All due records of the group are sent.
    fn finish(&mut self, place: u32, now: Instant) {
        let repeat_at = self.round.repeat_at;
        if self.groups[place].change_at <= now {
            let more = self.groups.count_down(place);
            self.groups[place].change_at = if more { repeat_at } else { Instant::MAX };
        }
        if self.groups[place].answer_at <= now {
            self.groups.forget_asked(place);
            let group = &mut self.groups[place];
            group.answer_at = Instant::MAX;
            group.answered = Some(now);
        }
        if !self.groups[place].is_member() && self.groups[place].change_at == Instant::MAX {
            self.groups.remove(place);
        }
    }

    fn visit_old(&mut self, place: u32, now: Instant) -> GroupOutcome {
        if !self.groups[place].is_member() {
            let group = self.groups[place].address;
            self.groups.remove(place);
            return GroupOutcome::Old(Announcement::Leave(group));
        }
        if let Some(response) = self.round.spread {
            self.delay(place, response, now);
        }
        let group = &self.groups[place];
        if group.change_at > now && group.answer_at > now {
            return GroupOutcome::Done;
        }
        let repeat_at = now + self.draw(UNSOLICITED_INTERVAL_OLD);
        let group = &mut self.groups[place];
        if group.change_at <= now {
            group.mode_repeats = group.mode_repeats.saturating_sub(1);
            group.change_at = if group.mode_repeats > 0 { repeat_at } else { Instant::MAX };
        }
        if group.answer_at <= now {
            group.answer_at = Instant::MAX;
            group.answered = Some(now);
        }
        group.is_last_reporter = true;
        let address = group.address;
        GroupOutcome::Old(match self.version {
            IgmpVersion::V1 => Announcement::ReportV1(address),
            _ => Announcement::ReportV2(address),
        })
    }
}
