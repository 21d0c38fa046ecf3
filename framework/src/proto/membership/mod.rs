//! IGMP as a host: reports to the routers and switches of one link which groups and sources are
//! wanted there (RFC 3376; RFC 2236 and RFC 1112 while a router supports only those).
//!
//! ```text
//!   changed (what consumers want together) ──▶ ┌──────────┐
//!   query, report_heard (from the wire) ─────▶ │ Reporter │ ──▶ next: one message to send, as values
//!   announce, link_up, link_down (host) ─────▶ └──────────┘
//! ```
//! The machine keeps the filter of each group as it was last reported, so that a change is a
//! comparison, and three kinds of deadlines: when a change is reported again, when a query is
//! answered, and until when an older querier is assumed present. The machine sends nothing itself.
//! [`Reporter::next`] scans the groups in steps of bounded work and packs due records into reports
//! that fit the link; each message it returns counts as sent.
//!
//! It does not check where a message came from: the node checks TTL, router alert and sender.

mod groups;
mod report;
mod walk;

use core::fmt;
use core::net::Ipv4Addr;
use core::ops::RangeInclusive;

use self::groups::{Groups, QueryScope};
use self::report::Report;
use self::walk::WalkState;
use super::hash::HashSeed;
use super::source_filter::FilterMode;
use crate::time::{Duration, Instant};
use crate::wire::igmp::ALL_SYSTEMS;
use crate::wire::{IgmpQuery, IgmpVersion};

pub use self::report::{Announcement, Record, Records};

/// Repetitions of a report where no querier has announced its robustness (RFC 3376 8.1).
const ROBUSTNESS: u8 = 2;
/// A querier's interval where it has not announced it (RFC 3376 8.2).
const QUERY_INTERVAL: Duration = Duration::from_secs(125);
/// Bounds on the values that a querier announces. Any host on the link can send a query. Without
/// bounds two forged queries keep us at version 2 for 2.57 days (7 times 31,744 s and 3,174 s), and
/// we receive from every source for as long. Real queriers are well within these bounds; a querier
/// outside of them gets our reports sooner and more often than it requested.
const ROBUSTNESS_RANGE: RangeInclusive<u8> = ROBUSTNESS..=4;
/// The maximum of version 2, and two and a half times the default of queriers.
const RESPONSE_MAX: Duration = Duration::from_millis(25_500);
/// The longest time for which an older querier is assumed present after its last query, for any
/// interval that a newer one has announced; intervals need no separate bound. The RFC's defaults
/// give 260 s; a real querier with a longer interval renews its presence with each query.
const OLDER_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// The interval between two answers to the same query. It is the unit of response times, so no
/// querier can intend to query faster; a flood of queries gets at most ten answers a second.
const ANSWER_GAP: Duration = Duration::from_millis(100);
/// The machine's capacities and its versions. All memory is allocated at construction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReporterConfig {
    /// The most groups: as many as the sockets may have, about 80 bytes each. A new group displaces
    /// a group that was left and whose leave is still to be repeated. Further groups are not
    /// reported. By default 2,048.
    pub groups: usize,
    /// Sources in the lists of all groups, about 50 bytes each. A list that finds no room becomes
    /// "any source": more arrives than is wanted, and the consumers' filters still drop it. By
    /// default 20,480.
    pub sources: usize,
    /// Bytes of the longest report: the link's MTU without the 24 bytes of IPv4 with router alert.
    /// The link drops longer ones; shorter ones make more packets. By default 1,476.
    pub report_len_max: usize,
    /// The newest version to use. Below 3 for switches with a faulty version 3; sources are then
    /// never reported. By default version 3.
    pub version: IgmpVersion,
    /// The oldest version to use: a query of an older version is answered in this one. Set version
    /// 3 where all routers and switches of the link support it; then no host can make us request
    /// all sources with a query of version 2. By default version 1.
    pub version_min: IgmpVersion,
}

impl Default for ReporterConfig {
    /// The defaults of the sockets, on Ethernet. About 1.5 MiB.
    fn default() -> Self {
        let (version, version_min) = (IgmpVersion::V3, IgmpVersion::V1);
        Self { groups: 2_048, sources: 20_480, report_len_max: 1_500 - 24, version, version_min }
    }
}

impl ReporterConfig {
    /// The bytes that `Reporter::new` allocates: groups with their sources, and the report being
    /// filled.
    pub fn bytes(&self) -> usize {
        Groups::bytes(self.groups, self.sources) + Report::bytes(self.report_len_max)
    }
}

/// Why a filter was not applied in full. Both mean that the machine is smaller than the sockets it
/// reports for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReporterError {
    /// No room for another group: it is not reported.
    GroupsFull,
    /// No room for the list of sources: the group is reported for any source.
    SourcesFull,
}

impl fmt::Display for ReporterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GroupsFull => "no room to report another group by IGMP: raise the reporter's groups",
            Self::SourcesFull => "no room to report another source by IGMP, any source is asked for: raise sources",
        })
    }
}

impl core::error::Error for ReporterError {}

/// The reports of our groups on one link.
#[derive(Debug)]
pub struct Reporter {
    config: ReporterConfig,
    groups: Groups,
    /// The version in use: the oldest among the queriers that are present.
    version: IgmpVersion,
    v1_until: Instant,
    v2_until: Instant,
    robustness: u8,
    query_interval: Duration,
    /// The time at which the answer to a general query of version 3 is due; [`Instant::MAX`] for
    /// never, as everywhere here.
    general_at: Instant,
    general_answered: Option<Instant>,
    /// For an older general query: the walk draws a delay up to this for each group.
    spread: Option<Duration>,
    /// Nothing is due before this.
    wake: Instant,
    round: WalkState,
    report: Report,
    is_down: bool,
    seed: HashSeed,
    draws: u64,
}

impl Reporter {
    /// A machine on a link that is up, in no group. The seed randomizes the delays.
    ///
    /// # Panics
    /// Where `report_len_max` is below the 44 bytes that IPv4's smallest MTU leaves.
    pub fn new(config: ReporterConfig, seed: HashSeed) -> Self {
        assert!(config.report_len_max >= 44, "an IPv4 link of 68 bytes takes reports of 44 (RFC 791 3.2)");
        Self {
            groups: Groups::new(config.groups, config.sources, seed),
            version: config.version,
            v1_until: Instant::ZERO,
            v2_until: Instant::ZERO,
            robustness: ROBUSTNESS,
            query_interval: QUERY_INTERVAL,
            general_at: Instant::MAX,
            general_answered: None,
            spread: None,
            wake: Instant::MAX,
            round: WalkState::IDLE,
            report: Report::new(config.report_len_max),
            is_down: false,
            seed,
            draws: 0,
            config,
        }
    }

    /// Sets the interface's filter for a group, merged over all consumers (RFC 3376 3.2); an empty
    /// include list leaves the group. The difference to the last report (RFC 3376 5.1) leaves with
    /// the next [`Reporter::next`], and is repeated as often as the querier's robustness demands.
    /// Costs a probe for each source.
    pub fn set_filter(
        &mut self,
        group: Ipv4Addr,
        mode: FilterMode,
        sources: impl IntoIterator<Item = Ipv4Addr>,
        now: Instant,
    ) -> Result<(), ReporterError> {
        // Every host is a member of all-systems, and none reports it (RFC 3376 6).
        if group == ALL_SYSTEMS || !group.is_multicast() {
            return Ok(());
        }
        self.settle_version(now);
        let mut sources = sources.into_iter().peekable();
        let is_leaving = mode == FilterMode::Include && sources.peek().is_none();
        let place = match self.groups.find(group) {
            Some(place) => place,
            None if is_leaving => return Ok(()),
            None => self.add(group)?,
        };
        let was_member = self.groups[place].is_member();
        let fits = self.groups.want(place, sources);
        let mode = if fits { mode } else { FilterMode::Exclude };
        // Older versions have groups without sources, and a link that is down carries no reports.
        let tells_filters = self.version == IgmpVersion::V3 && !self.is_down;
        if self.groups.settle(place, mode, tells_filters.then_some(self.robustness)) {
            self.tell_change(place, was_member, now);
        }
        if fits { Ok(()) } else { Err(ReporterError::SourcesFull) }
    }

    /// A query from a router (RFC 3376 5.2, RFC 2236 3). The answer is due after a random delay
    /// within the response time. The querier's version, interval and robustness hold from now on,
    /// within bounds. Costs a probe for each source in the query, of which a frame holds 366.
    pub fn query(&mut self, query: &IgmpQuery<'_>, now: Instant) {
        self.learn(query, response_of(query), now);
        self.answer(query, now);
    }

    /// A query from a host that may not be a router of this link: answers it, which does no harm,
    /// and learns nothing from it.
    pub fn answer(&mut self, query: &IgmpQuery<'_>, now: Instant) {
        let response = response_of(query);
        self.settle_version(now);
        if self.is_down {
            return;
        }
        match (self.version, query.is_general()) {
            (IgmpVersion::V3, is_general) => {
                let at = now + self.draw(response);
                // A general answer that is due sooner answers everything (RFC 3376 5.2, rule 1).
                match is_general {
                    _ if self.general_at <= at => {}
                    true => self.answer_all(at),
                    false => self.answer_group(query, at),
                }
            }
            (_, true) => {
                self.spread = Some(self.spread.map_or(response, |pending| response.min(pending)));
                self.arm(now);
            }
            (_, false) => {
                let place = self.groups.find(query.group).filter(|place| self.groups[*place].is_member());
                if let Some(place) = place {
                    self.delay(place, response, now);
                }
            }
        }
    }

    /// Another host reported the group in version 1 or 2. Where we use one of these versions too,
    /// one report is enough, and the other host sends the leave (RFC 2236 3). Version 3 suppresses
    /// no reports. A report that arrives in the same poll as the general query, before our walk has
    /// drawn the delays, suppresses none of ours either; one report too many does no harm.
    pub fn report_heard(&mut self, group: Ipv4Addr, now: Instant) {
        self.settle_version(now);
        let Some(place) = self.groups.find(group) else { return };
        let state = &mut self.groups[place];
        if self.version == IgmpVersion::V3 || !state.is_member() {
            return;
        }
        state.mode_repeats = 0;
        state.change_at = Instant::MAX;
        state.answer_at = Instant::MAX;
        state.is_last_reporter = false;
    }

    /// Reports everything again, because our address on the link changed. Costs a scan of all
    /// groups and sources.
    pub fn announce(&mut self, now: Instant) {
        self.settle_version(now);
        if self.is_down {
            return;
        }
        for place in self.groups.places() {
            if self.groups.get(place).is_some_and(groups::Group::is_member) {
                if self.version == IgmpVersion::V3 {
                    self.groups.repeat_all(place, self.robustness);
                }
                self.tell_change(place, false, now);
            }
        }
    }

    /// The link is back, perhaps at another switch: reports everything again. An older querier is
    /// assumed still present, because an older querier does not understand newer reports, while a
    /// newer one understands older ones.
    pub fn link_up(&mut self, now: Instant) {
        self.is_down = false;
        self.announce(now);
    }

    /// The link is down: sends nothing until [`Reporter::link_up`]. Keeps changes, but drops
    /// pending answers and leaves.
    pub fn link_down(&mut self) {
        self.is_down = true;
        self.cancel();
    }

    /// Sets the length of the largest report, where the link's MTU has shrunk or grown back. The
    /// value at construction is the maximum; below 44 bytes nothing changes.
    pub fn set_report_len_max(&mut self, len: usize) {
        self.report.set_len_max(len.clamp(44, self.config.report_len_max));
    }

    /// The next message to send, if one is due. Call it until it returns none, or until the caller
    /// has sent enough for this turn; the next turn returns the rest. Also returns none after it
    /// has checked 256 groups and found nothing due.
    #[inline]
    pub fn next(&mut self, now: Instant) -> Option<Announcement<'_>> {
        if self.is_due(now) { self.walk(now) } else { None }
    }

    /// Whether [`Reporter::next`] has work: two compares.
    #[inline]
    pub fn is_due(&self, now: Instant) -> bool {
        (now >= self.wake || self.round.is_running) && !self.is_down
    }

    /// When [`Reporter::next`] has work next, not later; `Instant::MAX` while the link is down.
    pub fn next_deadline(&self, now: Instant) -> Instant {
        match self.round.is_running {
            _ if self.is_down => Instant::MAX,
            true => now,
            false => self.wake,
        }
    }

    /// The version in use.
    pub fn version(&self) -> IgmpVersion {
        self.version
    }

    /// The number of repetitions: the querier's robustness variable, or 2.
    pub fn robustness(&self) -> u8 {
        self.robustness
    }

    /// Groups that are wanted, or were left and are still to be reported.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Entries for groups: the bound of [`Reporter::group_at`].
    pub fn places(&self) -> usize {
        self.groups.places().len()
    }

    /// The group in an entry, where one is wanted.
    pub fn group_at(&self, place: usize) -> Option<Ipv4Addr> {
        let group = self.groups.get(u32::try_from(place).ok()?)?;
        group.is_member().then_some(group.address)
    }

    /// An entry for a new group. Groups that were left make way: a lost leave costs the network
    /// some traffic until its timer ends, a lost join costs us data.
    fn add(&mut self, group: Ipv4Addr) -> Result<u32, ReporterError> {
        if let Some(place) = self.groups.insert(group) {
            return Ok(place);
        }
        let is_left = |place: &u32| self.groups.get(*place).is_some_and(|group| !group.is_member());
        let left = self.groups.places().find(is_left).ok_or(ReporterError::GroupsFull)?;
        self.groups.remove(left);
        self.restart(left);
        self.groups.insert(group).ok_or(ReporterError::GroupsFull)
    }

    /// A filter has changed: schedules the report that the version in use needs.
    fn tell_change(&mut self, place: u32, was_member: bool, now: Instant) {
        self.restart(place);
        let state = &mut self.groups[place];
        let is_member = state.is_member();
        match self.version {
            _ if self.is_down => {}
            IgmpVersion::V3 => state.change_at = now,
            // Older versions report joins and leaves only.
            IgmpVersion::V1 | IgmpVersion::V2 if is_member && was_member => {}
            IgmpVersion::V1 | IgmpVersion::V2 if is_member => {
                state.mode_repeats = self.robustness;
                state.change_at = now;
            }
            IgmpVersion::V2 if state.is_last_reporter => state.change_at = now,
            IgmpVersion::V1 | IgmpVersion::V2 => state.change_at = Instant::MAX,
        }
        if !is_member && self.groups[place].change_at == Instant::MAX {
            self.groups.remove(place);
            return;
        }
        self.arm(self.groups[place].change_at);
    }

    /// Learns the querier's version, interval and robustness (RFC 3376 4.1.6, 4.1.7 and 7.2.1).
    fn learn(&mut self, query: &IgmpQuery<'_>, response: Duration, now: Instant) {
        let older_until = now + self.older_timeout(response);
        match query.version {
            IgmpVersion::V1 => {
                self.v1_until = older_until;
                self.arm(older_until);
            }
            IgmpVersion::V2 if query.is_general() => {
                self.v2_until = older_until;
                self.arm(older_until);
            }
            IgmpVersion::V2 => {}
            IgmpVersion::V3 => {
                self.robustness = query.robustness.clamp(*ROBUSTNESS_RANGE.start(), *ROBUSTNESS_RANGE.end());
                let interval = Duration::from_secs(u64::from(query.interval_s));
                self.query_interval = if query.interval_s == 0 { QUERY_INTERVAL } else { interval };
            }
        }
    }

    /// A general query, in version 3: rule 2 of RFC 3376 5.2.
    fn answer_all(&mut self, at: Instant) {
        let gap = self.general_answered.map_or(Instant::ZERO, |answered| answered + ANSWER_GAP);
        self.general_at = at.max(gap);
        self.arm(self.general_at);
    }

    /// A query for one group, in version 3: rules 3 to 5 of RFC 3376 5.2.
    fn answer_group(&mut self, query: &IgmpQuery<'_>, at: Instant) {
        let Some(place) = self.groups.find(query.group) else { return };
        if !self.groups[place].is_member() {
            return;
        }
        self.restart(place);
        let asks_sources = query.sources.count() > 0 && self.groups[place].queried != QueryScope::Group;
        // Where its sources find no room, the whole group is reported: a superset.
        if asks_sources && self.groups.ask(place, query.sources.iter()) {
            self.groups[place].queried = QueryScope::Sources;
        } else {
            self.groups.forget_asked(place);
            self.groups[place].queried = QueryScope::Group;
        }
        let state = &mut self.groups[place];
        let gap = state.answered.map_or(Instant::ZERO, |answered| answered + ANSWER_GAP);
        state.answer_at = state.answer_at.min(at.max(gap));
        let at = state.answer_at;
        self.arm(at);
    }

    /// A query in version 1 or 2: a running timer is drawn again only where it would end too late
    /// (RFC 2236 3).
    fn delay(&mut self, place: u32, response: Duration, now: Instant) {
        let at = now + self.draw(response);
        let state = &mut self.groups[place];
        if state.answer_at > now + response {
            let gap = state.answered.map_or(Instant::ZERO, |answered| answered + ANSWER_GAP);
            state.answer_at = at.max(gap);
            let at = state.answer_at;
            self.arm(at);
        }
    }

    /// The version of the oldest querier that is present. A change cancels all pending reports (RFC
    /// 3376 7.2.1).
    fn settle_version(&mut self, now: Instant) {
        let heard = if now < self.v1_until {
            IgmpVersion::V1
        } else if now < self.v2_until {
            IgmpVersion::V2
        } else {
            IgmpVersion::V3
        };
        let version = heard.max(self.config.version_min).min(self.config.version);
        if version != self.version {
            self.version = version;
            self.cancel();
            self.wake = self.next_expiry(now);
        }
    }

    /// How long an older querier is assumed present (RFC 3376 8.12).
    fn older_timeout(&self, response: Duration) -> Duration {
        let asked = Duration::from_nanos(self.query_interval.as_nanos() * u64::from(self.robustness));
        (asked + response).min(OLDER_TIMEOUT_MAX)
    }

    /// When an older querier is no longer assumed present.
    fn next_expiry(&self, now: Instant) -> Instant {
        let pending = [self.v1_until, self.v2_until].into_iter().filter(|until| *until > now);
        pending.min().unwrap_or(Instant::MAX)
    }

    /// Cancels all pending reports, and removes the groups that existed only for these.
    fn cancel(&mut self) {
        self.general_at = Instant::MAX;
        self.spread = None;
        self.round = WalkState::IDLE;
        for place in self.groups.places() {
            if self.groups.get(place).is_none() {
                continue;
            }
            self.groups.forget_changes(place);
            self.groups.forget_asked(place);
            self.groups[place].answer_at = Instant::MAX;
            if !self.groups[place].is_member() {
                self.groups.remove(place);
            }
        }
    }

    /// Something is due at `at`.
    fn arm(&mut self, at: Instant) {
        self.wake = self.wake.min(at);
        self.round.earliest = self.round.earliest.min(at);
    }

    /// A group's report has changed while it is being sent: it starts again.
    fn restart(&mut self, place: u32) {
        if self.round.place == place {
            self.round.part = 0;
            self.round.reported = 0;
        }
    }

    /// A delay of up to `longest`, never zero where there is a choice: otherwise all hosts of a
    /// link would answer at once.
    fn draw(&mut self, longest: Duration) -> Duration {
        self.draws += 1;
        match longest.as_nanos() {
            0 => Duration::ZERO,
            ns => Duration::from_nanos(1 + self.seed.sip(&[self.draws]) % ns),
        }
    }
}

/// The response time of a query. A sooner answer is always valid.
fn response_of(query: &IgmpQuery<'_>) -> Duration {
    Duration::from_millis(u64::from(query.max_response_tenths) * 100).min(RESPONSE_MAX)
}

#[cfg(test)]
mod tests;
