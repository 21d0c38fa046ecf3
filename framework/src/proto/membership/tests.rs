use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::wire::igmp::{IgmpSources, RecordKind};
use FilterMode::{Exclude, Include};

const G: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const H: Ipv4Addr = Ipv4Addr::new(239, 2, 2, 2);
const SECOND: Duration = Duration::from_secs(1);

/// A machine, its clock and all its messages: each as a line, sources by their last byte.
struct Script {
    reporter: Reporter,
    now: Instant,
}

fn script() -> Script {
    script_with(ReporterConfig { groups: 4, sources: 16, ..ReporterConfig::default() })
}

fn script_with(config: ReporterConfig) -> Script {
    Script { reporter: Reporter::new(config, HashSeed::new(1, 2)), now: Instant::from_nanos(1_000_000) }
}

fn source(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

fn general(version: IgmpVersion) -> IgmpQuery<'static> {
    let max_response_tenths = 100;
    let (suppress, robustness, interval_s, sources) = (false, 0, 0, IgmpSources::NONE);
    IgmpQuery { version, group: Ipv4Addr::UNSPECIFIED, max_response_tenths, suppress, robustness, interval_s, sources }
}

fn specific(version: IgmpVersion, group: Ipv4Addr) -> IgmpQuery<'static> {
    IgmpQuery { group, max_response_tenths: 10, ..general(version) }
}

/// `{1 2}` for a list of sources in ascending order.
fn set(sources: &[Ipv4Addr]) -> String {
    let mut sources: Vec<_> = sources.iter().map(|source| source.octets()[3]).collect();
    sources.sort_unstable();
    let words: Vec<_> = sources.iter().map(u8::to_string).collect();
    format!("{{{}}}", words.join(" "))
}

fn line(record: &Record<'_>) -> String {
    let kind = match record.kind {
        RecordKind::ModeIsInclude => "IS_IN",
        RecordKind::ModeIsExclude => "IS_EX",
        RecordKind::ChangeToInclude => "TO_IN",
        RecordKind::ChangeToExclude => "TO_EX",
        RecordKind::AllowNewSources => "ALLOW",
        RecordKind::BlockOldSources => "BLOCK",
        RecordKind::Other(_) => "?",
    };
    let name = if record.group == G { "G" } else { "H" };
    format!("{name} {kind}{}", set(record.sources))
}

impl Script {
    fn set(&mut self, mode: FilterMode, sources: &[u8]) {
        let sources = sources.iter().map(|last| source(*last));
        self.reporter.set_filter(G, mode, sources, self.now).unwrap();
    }

    fn join(&mut self, group: Ipv4Addr) {
        self.reporter.set_filter(group, Exclude, [], self.now).unwrap();
    }

    fn leave(&mut self, group: Ipv4Addr) {
        self.reporter.set_filter(group, Include, [], self.now).unwrap();
    }

    fn query(&mut self, query: &IgmpQuery<'_>) {
        self.reporter.query(query, self.now);
    }

    /// A query for G and sources, answered within a second.
    fn ask(&mut self, sources: &[u8]) {
        let sources: Vec<_> = sources.iter().map(|last| source(*last).octets()).collect();
        let query = IgmpQuery { sources: IgmpSources::new(&sources), ..specific(IgmpVersion::V3, G) };
        self.query(&query);
    }

    /// All messages that are due now.
    fn said(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while self.reporter.is_due(self.now) {
            let Some(message) = self.reporter.next(self.now) else { continue };
            said.push(match message {
                Announcement::ReportV1(group) => format!("v1 {group}"),
                Announcement::ReportV2(group) => format!("v2 {group}"),
                Announcement::Leave(group) => format!("leave {group}"),
                Announcement::ReportV3(records) => {
                    let lines: Vec<_> = records.iter().map(|record| line(&record)).collect();
                    lines.join(", ")
                }
            });
        }
        said
    }

    /// All messages of the next `span`, in steps of 10 ms.
    fn within(&mut self, span: Duration) -> Vec<String> {
        let end = self.now + span;
        let mut said = self.said();
        while self.now < end {
            self.now += Duration::from_millis(10);
            said.extend(self.said());
        }
        said
    }

    /// Advances until nothing is left to repeat.
    fn quiet(mut self) -> Self {
        self.within(Duration::from_secs(60));
        assert!(self.within(Duration::from_secs(60)).is_empty());
        self
    }
}

/// G with a filter that has been reported.
fn reported_filter(mode: FilterMode, sources: &[u8]) -> Script {
    let mut script = script();
    script.set(mode, sources);
    script.quiet()
}

/// A row of the table of RFC 3376 5.1: reported at once, and once more within a second.
#[track_caller]
fn check_change(before: (FilterMode, &[u8]), after: (FilterMode, &[u8]), expected: &str) {
    let mut script = reported_filter(before.0, before.1);
    script.set(after.0, after.1);
    assert_eq!(script.said(), [expected]);
    assert_eq!(script.within(SECOND), [expected]);
    assert!(script.within(Duration::from_secs(10)).is_empty());
}

#[test]
fn changes_are_told_by_the_table_of_rfc_3376() {
    check_change((Include, &[1, 2]), (Include, &[2, 3]), "G ALLOW{3}, G BLOCK{1}");
    check_change((Exclude, &[1, 2]), (Exclude, &[2, 3]), "G ALLOW{1}, G BLOCK{3}");
    check_change((Include, &[1, 2]), (Exclude, &[2, 3]), "G TO_EX{2 3}");
    check_change((Exclude, &[1, 2]), (Include, &[2, 3]), "G TO_IN{2 3}");
    check_change((Include, &[]), (Exclude, &[]), "G TO_EX{}");
    check_change((Exclude, &[]), (Include, &[]), "G TO_IN{}");
    check_change((Include, &[]), (Include, &[1]), "G ALLOW{1}");
    check_change((Include, &[1]), (Include, &[]), "G BLOCK{1}");
}

#[test]
fn filter_that_stays_is_not_told() {
    let mut script = reported_filter(Exclude, &[1]);
    script.set(Exclude, &[1, 1]);
    assert!(script.within(SECOND).is_empty());
    script.leave(H);
    script.join(ALL_SYSTEMS);
    assert!(script.within(SECOND).is_empty());
}

#[test]
fn group_that_was_left_is_forgotten_when_it_is_told() {
    for (mode, sources) in [(Exclude, &[][..]), (Include, &[1, 2]), (Exclude, &[3])] {
        let mut script = reported_filter(mode, sources);
        script.leave(G);
        assert_eq!(script.reporter.groups(), 1);
        let script = script.quiet();
        assert_eq!((script.reporter.groups(), script.reporter.groups.find(G)), (0, None));
    }
}

#[test]
fn second_change_is_merged_with_the_repeats_of_the_first() {
    let mut script = reported_filter(Include, &[1, 2]);
    script.set(Include, &[2]);
    assert_eq!(script.said(), ["G BLOCK{1}"]);
    script.set(Include, &[2, 3]);
    assert_eq!(script.said(), ["G ALLOW{3}, G BLOCK{1}"]);
    assert_eq!(script.within(SECOND), ["G ALLOW{3}"]);
    // A source that comes back while its removal is still being reported.
    script.set(Include, &[3]);
    script.said();
    script.set(Include, &[2, 3]);
    assert_eq!(script.said(), ["G ALLOW{2}"]);
}

#[test]
fn mode_change_is_told_whole_until_its_repeats_are_over() {
    let mut script = script();
    script.set(Exclude, &[]);
    assert_eq!(script.said(), ["G TO_EX{}"]);
    // A change of the list within that time goes with the mode, then on its own.
    script.set(Exclude, &[1]);
    assert_eq!(script.said(), ["G TO_EX{1}"]);
    assert_eq!(script.within(SECOND), ["G BLOCK{1}"]);
    assert!(script.within(SECOND).is_empty());
}

#[test]
fn robustness_of_the_querier_counts_the_repeats() {
    let mut script = script();
    script.query(&IgmpQuery { robustness: 4, ..specific(IgmpVersion::V3, H) });
    script.join(G);
    assert_eq!(script.within(Duration::from_secs(8)), ["G TO_EX{}"; 4]);
    script.query(&specific(IgmpVersion::V3, H));
    assert_eq!(script.reporter.robustness(), ROBUSTNESS);
}

/// A row of the table of RFC 3376 5.2: one answer within the response time, or none.
#[track_caller]
fn check_answer(state: (FilterMode, &[u8]), asked: Option<&[u8]>, expected: &[&str]) {
    let mut script = reported_filter(state.0, state.1);
    match asked {
        Some(sources) => script.ask(sources),
        None => script.query(&general(IgmpVersion::V3)),
    }
    assert!(script.said().is_empty(), "an answer waits");
    assert_eq!(script.within(Duration::from_secs(10)), expected);
    assert_eq!(script.reporter.groups.queried_sources(), 0);
}

#[test]
fn queries_are_answered_by_the_table_of_rfc_3376() {
    check_answer((Include, &[1, 2]), None, &["G IS_IN{1 2}"]);
    check_answer((Exclude, &[1, 2]), None, &["G IS_EX{1 2}"]);
    check_answer((Include, &[1, 2]), Some(&[]), &["G IS_IN{1 2}"]);
    check_answer((Exclude, &[]), Some(&[]), &["G IS_EX{}"]);
    check_answer((Include, &[1, 2]), Some(&[2, 3]), &["G IS_IN{2}"]);
    check_answer((Exclude, &[1, 2]), Some(&[2, 3]), &["G IS_IN{3}"]);
    check_answer((Include, &[1, 2]), Some(&[3]), &[]);
    check_answer((Exclude, &[1, 2]), Some(&[1, 2]), &[]);
    check_answer((Include, &[]), Some(&[]), &[]);
    check_answer((Include, &[]), None, &[]);
}

#[test]
fn pending_answer_takes_further_questions() {
    let mut script = reported_filter(Include, &[1, 2, 3]);
    script.ask(&[1]);
    script.ask(&[3, 9]);
    assert_eq!(script.within(SECOND), ["G IS_IN{1 3}"]);
    script.ask(&[1]);
    script.ask(&[]);
    script.ask(&[2]);
    assert_eq!(script.within(SECOND), ["G IS_IN{1 2 3}"]);
}

#[test]
fn general_answer_that_comes_sooner_answers_the_rest() {
    let mut script = reported_filter(Exclude, &[]);
    script.query(&IgmpQuery { max_response_tenths: 0, ..general(IgmpVersion::V3) });
    script.query(&general(IgmpVersion::V3));
    script.ask(&[]);
    assert_eq!(script.within(Duration::from_secs(10)), ["G IS_EX{}"]);
}

#[test]
fn answers_spread_over_the_response_time() {
    let mut script = reported_filter(Exclude, &[]);
    let (mut first, mut last) = (u64::MAX, 0);
    for _ in 0..50 {
        let asked = script.now;
        script.query(&general(IgmpVersion::V3));
        while script.said().is_empty() {
            script.now += Duration::from_millis(10);
        }
        let after = script.now.since(asked).as_nanos() / 1_000_000;
        (first, last) = (first.min(after), last.max(after));
        script.now += SECOND;
    }
    assert!(first < 2_000 && (8_000..=10_010).contains(&last), "{first} to {last} ms");
}

#[test]
fn flood_of_queries_gets_ten_answers_a_second() {
    let mut script = reported_filter(Exclude, &[]);
    let mut answers = 0;
    for _ in 0..10_000 {
        script.now += Duration::from_micros(100);
        script.query(&IgmpQuery { max_response_tenths: 0, ..general(IgmpVersion::V3) });
        script.query(&IgmpQuery { max_response_tenths: 0, ..specific(IgmpVersion::V3, G) });
        answers += script.said().len();
    }
    assert!((10..=21).contains(&answers), "{answers}");
}

#[test]
fn query_for_more_sources_than_there_is_room_gets_the_whole_group() {
    let mut script = reported_filter(Exclude, &[1]);
    let sources: Vec<_> = (0..600u32).map(|at| (0x0b00_0000 + at).to_be_bytes()).collect();
    for part in sources.chunks(300) {
        script.query(&IgmpQuery { sources: IgmpSources::new(part), ..specific(IgmpVersion::V3, G) });
    }
    assert_eq!(script.within(SECOND), ["G IS_EX{1}"]);
    assert_eq!(script.reporter.groups.queried_sources(), 0);
}

#[test]
fn version_2_repeats_a_join_and_leaves_once() {
    let mut script = script();
    script.query(&general(IgmpVersion::V2));
    script.within(Duration::from_secs(10));
    script.join(G);
    assert_eq!(script.said(), ["v2 239.1.1.1"]);
    // The query names no sources of ours, and must not stop the repetition.
    script.set(Include, &[1]);
    script.set(Include, &[2]);
    assert_eq!(script.within(Duration::from_secs(10)), ["v2 239.1.1.1"]);
    script.leave(G);
    assert_eq!(script.within(Duration::from_secs(20)), ["leave 239.1.1.1"]);
    assert_eq!(script.reporter.groups(), 0);
}

#[test]
fn version_1_has_no_leave() {
    let mut script = script();
    script.query(&general(IgmpVersion::V1));
    script.join(G);
    assert_eq!(script.said(), ["v1 239.1.1.1"]);
    script.leave(G);
    assert!(script.within(Duration::from_secs(20)).is_empty());
    assert_eq!(script.reporter.groups(), 0);
}

#[test]
fn report_of_another_host_silences_ours_and_its_leave() {
    let mut script = script();
    script.query(&general(IgmpVersion::V2));
    script.join(G);
    assert_eq!(script.said().len(), 1);
    script.reporter.report_heard(G, script.now);
    assert!(script.within(Duration::from_secs(20)).is_empty());
    script.query(&specific(IgmpVersion::V2, G));
    script.reporter.report_heard(G, script.now);
    assert!(script.within(SECOND).is_empty());
    script.leave(G);
    assert!(script.within(SECOND).is_empty());
}

#[test]
fn version_3_is_silenced_by_nobody() {
    let mut script = reported_filter(Exclude, &[]);
    script.query(&general(IgmpVersion::V3));
    script.reporter.report_heard(G, script.now);
    assert_eq!(script.within(Duration::from_secs(10)), ["G IS_EX{}"]);
}

#[test]
fn query_for_a_group_is_answered_by_its_members_alone() {
    let mut script = script();
    script.query(&general(IgmpVersion::V2));
    script.join(G);
    script.join(H);
    script.within(Duration::from_secs(20));
    script.query(&specific(IgmpVersion::V2, H));
    script.query(&specific(IgmpVersion::V2, source(1)));
    assert_eq!(script.within(SECOND), ["v2 239.2.2.2"]);
    script.query(&general(IgmpVersion::V2));
    let mut said = script.within(Duration::from_secs(10));
    said.sort_unstable();
    assert_eq!(said, ["v2 239.1.1.1", "v2 239.2.2.2"]);
}

#[test]
fn running_timer_is_drawn_again_only_where_it_ends_too_late() {
    let mut script = script();
    script.query(&general(IgmpVersion::V2));
    script.join(G);
    script.within(Duration::from_secs(20));
    script.query(&general(IgmpVersion::V2));
    script.said();
    script.query(&specific(IgmpVersion::V2, G));
    assert_eq!(script.within(SECOND), ["v2 239.1.1.1"]);
    assert!(script.within(Duration::from_secs(10)).is_empty());
}

/// The rows of RFC 3376 7.2.1, with the time after which an older querier expires: 2 * 125 + 10 s.
#[test]
fn oldest_querier_that_is_there_sets_the_version() {
    use IgmpVersion::{V1, V2, V3};
    let mut script = reported_filter(Exclude, &[]);
    let mut after = |query: Option<&IgmpQuery<'_>>, seconds: u64, expected| {
        if let Some(query) = query {
            script.query(query);
        }
        script.within(Duration::from_secs(seconds));
        assert_eq!(script.reporter.version(), expected);
    };
    after(Some(&specific(V2, G)), 0, V3);
    after(Some(&general(V3)), 0, V3);
    after(Some(&general(V2)), 0, V2);
    after(Some(&general(V3)), 100, V2);
    after(Some(&general(V1)), 0, V1);
    after(Some(&general(V2)), 259, V1);
    after(None, 2, V3);
    after(Some(&general(V2)), 200, V2);
    after(Some(&general(V2)), 259, V2);
    after(None, 2, V3);
}

#[test]
fn change_of_version_cancels_what_is_pending() {
    let mut script = reported_filter(Exclude, &[]);
    script.join(H);
    script.said();
    script.leave(G);
    script.query(&general(IgmpVersion::V2));
    assert_eq!(script.within(Duration::from_secs(10)), ["v2 239.2.2.2"]);
    assert_eq!(script.reporter.groups(), 1);
    // Version 3 returns, and with it the answer to its query only.
    assert!(script.within(Duration::from_secs(300)).is_empty());
    script.query(&general(IgmpVersion::V3));
    assert_eq!(script.within(Duration::from_secs(10)), ["H IS_EX{}"]);
}

#[test]
fn version_is_never_newer_than_configured() {
    let mut script = script_with(ReporterConfig { version: IgmpVersion::V2, ..ReporterConfig::default() });
    script.join(G);
    assert_eq!(script.said(), ["v2 239.1.1.1"]);
    script.query(&general(IgmpVersion::V3));
    script.within(Duration::from_secs(11));
    script.query(&general(IgmpVersion::V1));
    assert_eq!(script.reporter.version(), IgmpVersion::V1);
}

/// The largest numbers that a query of version 3 can carry.
fn greatest() -> IgmpQuery<'static> {
    IgmpQuery { robustness: 7, interval_s: 31_744, max_response_tenths: 31_744, ..general(IgmpVersion::V3) }
}

/// That query, then one of an older version.
fn forge(script: &mut Script, version: IgmpVersion) {
    script.query(&greatest());
    script.query(&IgmpQuery { max_response_tenths: 255, ..general(version) });
}

#[test]
fn two_forged_queries_silence_source_reports_for_ten_minutes_at_most() {
    for version in [IgmpVersion::V1, IgmpVersion::V2] {
        let mut script = reported_filter(Include, &[1]);
        forge(&mut script, version);
        assert_eq!(script.reporter.version(), version);
        script.within(Duration::from_secs(599));
        assert_eq!(script.reporter.version(), version);
        script.within(Duration::from_secs(2));
        assert_eq!(script.reporter.version(), IgmpVersion::V3);
        script.query(&general(IgmpVersion::V3));
        assert_eq!(script.within(Duration::from_secs(10)), ["G IS_IN{1}"]);
    }
}

#[test]
fn forged_query_each_ten_minutes_keeps_source_reports_silent() {
    let mut script = reported_filter(Include, &[1]);
    for _ in 0..6 {
        forge(&mut script, IgmpVersion::V2);
        script.within(Duration::from_secs(599));
        assert_eq!(script.reporter.version(), IgmpVersion::V2);
    }
}

#[test]
fn version_is_never_older_than_configured_and_older_queries_are_answered() {
    let config = ReporterConfig { version_min: IgmpVersion::V3, ..ReporterConfig::default() };
    for version in [IgmpVersion::V1, IgmpVersion::V2] {
        let mut script = script_with(config);
        script.set(Include, &[1]);
        let mut script = script.quiet();
        forge(&mut script, version);
        assert_eq!(script.reporter.version(), IgmpVersion::V3);
        assert_eq!(script.within(Duration::from_secs(26)), ["G IS_IN{1}"]);
    }
    let mut script = script_with(ReporterConfig { version_min: IgmpVersion::V2, ..config });
    script.query(&general(IgmpVersion::V1));
    assert_eq!(script.reporter.version(), IgmpVersion::V2);
}

#[test]
fn what_a_querier_tells_of_itself_is_believed_within_bounds() {
    let mut script = reported_filter(Exclude, &[]);
    script.query(&greatest());
    assert_eq!(script.reporter.robustness(), 4);
    assert_eq!(
        script.within(Duration::from_millis(25_500)).len(),
        1,
        "an answer within 25.5 s and not within 53 minutes"
    );
    // With a robustness of 1 each lost report would cost a group.
    script.query(&IgmpQuery { robustness: 1, ..general(IgmpVersion::V3) });
    assert_eq!(script.reporter.robustness(), 2);
}

#[test]
fn query_from_an_unproven_router_is_answered_and_changes_no_state() {
    let mut script = reported_filter(Include, &[1]);
    script.reporter.answer(&general(IgmpVersion::V2), script.now);
    let numbers = IgmpQuery { robustness: 4, interval_s: 600, ..general(IgmpVersion::V3) };
    script.reporter.answer(&numbers, script.now);
    assert_eq!((script.reporter.version(), script.reporter.robustness()), (IgmpVersion::V3, ROBUSTNESS));
    assert_eq!(script.within(Duration::from_secs(10)), ["G IS_IN{1}"]);
}

#[test]
fn link_that_comes_back_is_told_everything() {
    let mut script = reported_filter(Include, &[1, 2]);
    script.join(H);
    script.reporter.link_down();
    script.query(&general(IgmpVersion::V3));
    script.set(Include, &[1, 3]);
    assert!(script.within(Duration::from_secs(30)).is_empty());
    script.leave(H);
    // A new address is not announced on a link that is down.
    script.reporter.announce(script.now);
    assert!(script.said().is_empty());
    script.reporter.link_up(script.now);
    assert_eq!(script.within(SECOND), ["G ALLOW{1 3}"; 2]);
    script.set(Exclude, &[7]);
    script.within(SECOND);
    script.reporter.announce(script.now);
    assert_eq!(script.within(SECOND), ["G TO_EX{7}"; 2]);
}

#[test]
fn list_without_room_becomes_any_source() {
    let mut script = script_with(ReporterConfig { groups: 2, sources: 3, ..ReporterConfig::default() });
    let sources = (1..=4).map(source);
    assert_eq!(script.reporter.set_filter(G, Include, sources, script.now), Err(ReporterError::SourcesFull));
    assert_eq!(script.said(), ["G TO_EX{}"]);
    script.set(Include, &[1, 2, 3]);
    assert_eq!(script.said(), ["G TO_IN{1 2 3}"]);
}

#[test]
fn group_that_was_left_makes_way_for_a_new_one() {
    let mut script = script_with(ReporterConfig { groups: 2, ..ReporterConfig::default() });
    script.join(G);
    script.join(H);
    let third = Ipv4Addr::new(239, 3, 3, 3);
    assert_eq!(script.reporter.set_filter(third, Exclude, [], script.now), Err(ReporterError::GroupsFull));
    script.leave(G);
    assert_eq!(script.reporter.set_filter(third, Exclude, [], script.now), Ok(()));
    assert_eq!((script.reporter.groups(), script.reporter.groups.find(G)), (2, None));
}

/// Joins `count` groups from any source; returns the records of each report of one call.
fn packed(count: u32, config: ReporterConfig) -> Vec<usize> {
    let mut script = script_with(config);
    for group in 0..count {
        script.join(Ipv4Addr::from_bits(0xef01_0000 + group));
    }
    let mut records = Vec::new();
    while script.reporter.is_due(script.now) {
        let Some(message) = script.reporter.next(script.now) else { continue };
        assert!(message.len() <= config.report_len_max);
        let Announcement::ReportV3(report) = message else { panic!("no report") };
        records.push(report.iter().count());
    }
    records
}

#[test]
fn thousand_groups_go_into_six_reports() {
    assert_eq!(packed(1_000, ReporterConfig::default()), [183, 183, 183, 183, 183, 85]);
    let small = ReporterConfig { report_len_max: 44, ..ReporterConfig::default() };
    assert_eq!(packed(10, small), [4, 4, 2]);
}

#[test]
fn thousand_groups_are_repeated_and_answered_together() {
    let mut script = script_with(ReporterConfig::default());
    for group in 0..1_000 {
        script.join(Ipv4Addr::from_bits(0xef01_0000 + group));
    }
    assert_eq!(script.within(SECOND).len(), 12);
    script.query(&general(IgmpVersion::V3));
    assert_eq!(script.within(Duration::from_secs(10)).len(), 6);
}

#[test]
fn long_lists_are_cut_where_they_include_and_clipped_where_they_exclude() {
    let config = ReporterConfig { groups: 4, sources: 32, report_len_max: 44, ..ReporterConfig::default() };
    let all: Vec<u8> = (1..=16).collect();
    let mut script = script_with(config);
    script.set(Include, &all);
    let said = script.said();
    assert_eq!(said.len(), 3);
    let count = |lines: &[String]| lines.iter().map(|line| line.split_whitespace().count() - 1).sum::<usize>();
    assert_eq!(count(&said), 16);
    script.set(Exclude, &all);
    let said = script.said();
    assert_eq!((said.len(), count(&said)), (1, 7));
}

#[test]
fn list_that_changes_while_it_is_told_is_told_from_its_beginning() {
    let config = ReporterConfig { groups: 4, sources: 32, report_len_max: 44, ..ReporterConfig::default() };
    let mut script = script_with(config);
    script.set(Include, &(1..=16).collect::<Vec<_>>());
    assert!(script.reporter.next(script.now).is_some());
    script.set(Include, &[1, 2]);
    let mut said = script.said();
    said[1..].sort_unstable();
    assert_eq!(said, ["G ALLOW{1 2}", "G BLOCK{10 11 12 13 14 15 16}", "G BLOCK{3 4 5 6 7 8 9}"]);
}

/// The state of a router that follows RFC 3376 6.4 without timers.
#[derive(Default)]
struct Router(BTreeMap<Ipv4Addr, (bool, std::collections::BTreeSet<Ipv4Addr>)>);

impl Router {
    fn hear(&mut self, record: &Record<'_>) {
        let sources = record.sources.iter().copied();
        let (excludes, list) = self.0.entry(record.group).or_default();
        match record.kind {
            RecordKind::ChangeToExclude | RecordKind::ModeIsExclude => (*excludes, *list) = (true, sources.collect()),
            RecordKind::ChangeToInclude => (*excludes, *list) = (false, sources.collect()),
            RecordKind::AllowNewSources if *excludes => list.retain(|source| !record.sources.contains(source)),
            RecordKind::BlockOldSources if !*excludes => list.retain(|source| !record.sources.contains(source)),
            RecordKind::AllowNewSources | RecordKind::BlockOldSources => list.extend(sources),
            RecordKind::ModeIsInclude | RecordKind::Other(_) => {}
        }
    }
}

proptest! {
    /// Holds for any order of changes and queries. Each change is reported twice, so a router that
    /// loses every second report knows the filter too; tested with one group and no queries,
    /// because the two reports must be consecutive.
    #[test]
    fn router_knows_the_filter_although_reports_are_lost(
        is_lossy: bool,
        steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0u8..64, 0u64..1_500, 0u8..8), 1..60)
    ) {
        let mut script = script_with(ReporterConfig { groups: 2, sources: 32, ..ReporterConfig::default() });
        let mut router = Router::default();
        let mut wanted = BTreeMap::new();
        let mut idx = 0;
        let mut listen = |script: &mut Script, router: &mut Router| {
            while script.reporter.is_due(script.now) {
                let Some(Announcement::ReportV3(records)) = script.reporter.next(script.now) else { continue };
                idx += 1;
                if !is_lossy || idx % 2 == 0 {
                    records.iter().for_each(|record| router.hear(&record));
                }
            }
        };
        for (first, excludes, sources, pause_ms, question) in steps {
            let group = if first || is_lossy { G } else { H };
            let sources: std::collections::BTreeSet<_> =
                (0..6).filter(|bit| sources >> bit & 1 == 1).map(source).collect();
            let mode = if excludes { Exclude } else { Include };
            script.reporter.set_filter(group, mode, sources.iter().copied(), script.now).unwrap();
            wanted.insert(group, (excludes, sources));
            match question {
                _ if is_lossy => {}
                0 => script.query(&general(IgmpVersion::V3)),
                1 => script.ask(&[1, 2, 77]),
                2 => script.ask(&[]),
                _ => {}
            }
            listen(&mut script, &mut router);
            for _ in 0..pause_ms / 50 {
                script.now += Duration::from_millis(50);
                listen(&mut script, &mut router);
            }
        }
        for _ in 0..400 {
            script.now += Duration::from_millis(50);
            listen(&mut script, &mut router);
        }
        for (group, filter) in wanted {
            prop_assert_eq!(router.0.get(&group).cloned().unwrap_or_default(), filter);
        }
        prop_assert_eq!(script.reporter.groups.queried_sources(), 0);
    }
}
