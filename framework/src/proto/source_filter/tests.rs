use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

const GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 1, 1);
const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const C: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 3);
const PORT0: InterfaceId = InterfaceId(0);
const PORT1: InterfaceId = InterfaceId(1);

fn filters(memberships: usize, sources: usize) -> SourceFilters {
    SourceFilters::new(SourceFilterCapacity { memberships, sources }, HashSeed::new(1, 2))
}

fn member(consumer: u32, interface: InterfaceId) -> Membership {
    Membership { consumer: ConsumerId(consumer), group: GROUP, interface }
}

/// Those of A, B, C that pass on PORT0.
fn accepted(filters: &SourceFilters, filter: FilterId) -> Vec<Ipv4Addr> {
    [A, B, C].into_iter().filter(|source| filters.accepts(filter, PORT0, *source)).collect()
}

fn reception_state(filters: &SourceFilters) -> Option<(FilterMode, BTreeSet<Ipv4Addr>)> {
    let reception_state = filters.reception_state(GROUP, PORT0)?;
    let sources: Vec<_> = reception_state.sources().collect();
    let set: BTreeSet<_> = sources.iter().copied().collect();
    assert_eq!(set.len(), sources.len(), "each source once");
    Some((reception_state.mode(), set))
}

#[test]
fn unicast_address_is_no_group() {
    let membership = Membership { group: A, ..member(1, PORT0) };
    assert_eq!(filters(1, 1).join(membership), Err(FilterError::NotAGroup));
    assert_eq!(filters(1, 1).join_source(membership, B), Err(FilterError::NotAGroup));
    assert_eq!(filters(1, 1).set(membership, FilterMode::Exclude, &[]), Err(FilterError::NotAGroup));
}

#[test]
fn who_did_not_join_can_change_nothing() {
    let mut filters = filters(2, 2);
    let nobody = member(1, PORT0);
    assert_eq!(filters.leave(nobody), Err(FilterError::NotAMember));
    assert_eq!(filters.block(nobody, A), Err(FilterError::NotAMember));
    assert_eq!(filters.unblock(nobody, A), Err(FilterError::NotAMember));
    assert_eq!(filters.leave_source(nobody, A), Err(FilterError::NotAMember));
}

#[test]
fn include_and_exclude_do_not_mix() {
    let mut filters = filters(2, 4);
    filters.join(member(1, PORT0)).unwrap();
    filters.join_source(member(2, PORT0), A).unwrap();
    assert_eq!(filters.join_source(member(1, PORT0), A), Err(FilterError::WrongMode));
    assert_eq!(filters.leave_source(member(1, PORT0), A), Err(FilterError::WrongMode));
    assert_eq!(filters.block(member(2, PORT0), A), Err(FilterError::WrongMode));
    assert_eq!(filters.join(member(2, PORT0)), Err(FilterError::AlreadyAMember));
}

#[test]
fn source_is_listed_once_and_unlisted_once() {
    let mut filters = filters(2, 4);
    filters.join_source(member(1, PORT0), A).unwrap();
    assert_eq!(filters.join_source(member(1, PORT0), A), Err(FilterError::SourceListed));
    assert_eq!(filters.leave_source(member(1, PORT0), B), Err(FilterError::SourceNotListed));
}

#[test]
fn membership_on_any_interface_and_on_one_would_deliver_twice() {
    let mut filters = filters(4, 4);
    filters.join(member(1, PORT0)).unwrap();
    filters.join(member(1, PORT1)).unwrap();
    filters.join(member(2, PORT0)).unwrap();
    assert_eq!(filters.join(member(1, InterfaceId::ANY)), Err(FilterError::AlreadyAMember));
    filters.join(member(3, InterfaceId::ANY)).unwrap();
    assert_eq!(filters.join(member(3, PORT0)), Err(FilterError::AlreadyAMember));
}

#[test]
fn full_machine_refuses_and_changes_nothing() {
    let mut filters = filters(1, 1);
    filters.join_source(member(1, PORT0), A).unwrap();
    assert_eq!(filters.join_source(member(1, PORT0), B), Err(FilterError::SourcesFull));
    assert_eq!(filters.join(member(2, PORT0)), Err(FilterError::MembershipsFull));
    assert_eq!(filters.set(member(1, PORT0), FilterMode::Exclude, &[A, B]), Err(FilterError::SourcesFull));
    assert_eq!(accepted(&filters, filters.filter(member(1, PORT0)).unwrap()), [A]);
    assert_eq!((filters.memberships(), filters.sources()), (1, 1));
}

#[test]
fn filter_that_was_left_accepts_nothing() {
    let mut filters = filters(1, 1);
    let filter = filters.join(member(1, PORT0)).unwrap();
    filters.leave(member(1, PORT0)).unwrap();
    assert_eq!(accepted(&filters, filter), [Ipv4Addr::LOCALHOST; 0]);
}

#[test]
fn any_source_takes_all_on_its_interface_only() {
    let mut filters = filters(2, 1);
    let filter = filters.join(member(1, PORT0)).unwrap();
    assert_eq!(accepted(&filters, filter), [A, B, C]);
    assert!(!filters.accepts(filter, PORT1, A));
    let everywhere = filters.join(member(2, InterfaceId::ANY)).unwrap();
    assert!(filters.accepts(everywhere, PORT0, A) && filters.accepts(everywhere, PORT1, A));
    assert!(filters.accepts(FilterId::ANY, PORT1, A));
}

#[test]
fn lists_of_no_one_and_several_sources_filter_alike() {
    let mut filters = filters(2, 8);
    let include = filters.join_source(member(1, PORT0), A).unwrap();
    let exclude = filters.join(member(2, PORT0)).unwrap();
    assert_eq!(accepted(&filters, include), [A]);
    filters.join_source(member(1, PORT0), C).unwrap();
    assert_eq!(accepted(&filters, include), [A, C]);
    assert_eq!(filters.leave_source(member(1, PORT0), C), Ok(true));
    assert_eq!(accepted(&filters, include), [A]);
    filters.block(member(2, PORT0), A).unwrap();
    assert_eq!(accepted(&filters, exclude), [B, C]);
    filters.block(member(2, PORT0), B).unwrap();
    assert_eq!(accepted(&filters, exclude), [C]);
    filters.unblock(member(2, PORT0), A).unwrap();
    assert_eq!(accepted(&filters, exclude), [A, C]);
}

#[test]
fn leaving_the_last_source_leaves_the_group() {
    let mut filters = filters(1, 2);
    filters.join_source(member(1, PORT0), A).unwrap();
    assert_eq!(filters.leave_source(member(1, PORT0), A), Ok(false));
    assert_eq!((filters.memberships(), filters.sources(), reception_state(&filters)), (0, 0, None));
}

#[test]
fn setting_include_of_nobody_leaves() {
    let mut filters = filters(1, 3);
    filters.set(member(1, PORT0), FilterMode::Exclude, &[A, A, B]).unwrap();
    assert_eq!(filters.sources(), 2);
    assert_eq!(filters.set(member(1, PORT0), FilterMode::Include, &[]), Ok(None));
    assert_eq!((filters.memberships(), filters.sources()), (0, 0));
}

#[test]
fn merge_follows_the_examples_of_rfc_3376() {
    // 3.2: s1 EXCLUDE {a,b,c,d}, s2 EXCLUDE {b,c,d,e}, s3 INCLUDE {d,e,f} gives EXCLUDE {b,c}.
    let [a, b, c, d, e, f] = [1, 2, 3, 4, 5, 6].map(|last| Ipv4Addr::new(10, 0, 0, last));
    let mut filters = filters(8, 32);
    filters.set(member(3, PORT0), FilterMode::Include, &[d, e, f]).unwrap();
    assert_eq!(reception_state(&filters), Some((FilterMode::Include, [d, e, f].into())));
    filters.set(member(1, PORT0), FilterMode::Exclude, &[a, b, c, d]).unwrap();
    filters.set(member(2, PORT0), FilterMode::Exclude, &[b, c, d, e]).unwrap();
    assert_eq!(reception_state(&filters), Some((FilterMode::Exclude, [b, c].into())));
    // A member for any source ends all exclusion; one on another interface has no effect.
    filters.join(member(4, PORT1)).unwrap();
    assert_eq!(reception_state(&filters), Some((FilterMode::Exclude, [b, c].into())));
    filters.join(member(5, InterfaceId::ANY)).unwrap();
    assert_eq!(reception_state(&filters), Some((FilterMode::Exclude, [].into())));
}

#[test]
fn thousands_of_groups_and_sources_fit() {
    let mut filters = filters(5000, 10_000);
    for idx in 0..5000u32 {
        let membership = Membership { group: Ipv4Addr::from_bits(0xe800_0000 + idx), ..member(1, PORT0) };
        let first = filters.join_source(membership, Ipv4Addr::from_bits(idx)).unwrap();
        filters.join_source(membership, Ipv4Addr::from_bits(idx + 1)).unwrap();
        assert!(filters.accepts(first, PORT0, Ipv4Addr::from_bits(idx + 1)));
        assert!(!filters.accepts(first, PORT0, Ipv4Addr::from_bits(idx + 2)));
    }
}

proptest! {
    #[test]
    fn filters_agree_with_sets(changes in prop::collection::vec((0u8..6, 0u32..3, 0u32..4), 1..200)) {
        let mut filters = filters(4, 16);
        let mut model: HashMap<u32, (FilterMode, BTreeSet<Ipv4Addr>)> = HashMap::new();
        for (change, consumer, source) in changes {
            let (membership, source) = (member(consumer, PORT0), Ipv4Addr::from_bits(source));
            let held = model.get(&consumer).cloned();
            let mut list = held.clone().map(|(_, list)| list).unwrap_or_default();
            let mode = held.map(|(mode, _)| mode);
            let changed = match change {
                0 => filters.join(membership).is_ok().then_some(FilterMode::Exclude),
                1 => filters.leave(membership).is_ok().then(|| { list.clear(); FilterMode::Include }),
                2 => filters.join_source(membership, source).is_ok()
                    .then(|| { assert!(list.insert(source)); FilterMode::Include }),
                3 => filters.leave_source(membership, source).is_ok()
                    .then(|| { assert!(list.remove(&source)); FilterMode::Include }),
                4 => filters.block(membership, source).is_ok()
                    .then(|| { assert!(mode.is_some() && list.insert(source)); FilterMode::Exclude }),
                _ => filters.unblock(membership, source).is_ok()
                    .then(|| { assert!(list.remove(&source)); FilterMode::Exclude }),
            };
            match changed {
                Some(FilterMode::Include) if list.is_empty() => { model.remove(&consumer); }
                Some(mode) => { model.insert(consumer, (mode, list)); }
                None => {}
            }
            let wanted = |source: &Ipv4Addr| model.values()
                .any(|(mode, list)| list.contains(source) == (*mode == FilterMode::Include));
            let state = reception_state(&filters);
            prop_assert_eq!(state.is_some(), !model.is_empty());
            for source in (0..4).map(Ipv4Addr::from_bits) {
                for (consumer, (mode, list)) in &model {
                    let filter = filters.filter(member(*consumer, PORT0)).unwrap();
                    let expected = list.contains(&source) == (*mode == FilterMode::Include);
                    prop_assert_eq!(filters.accepts(filter, PORT0, source), expected);
                }
                // The interface receives a source exactly where one of its consumers wants it.
                let passes = state.as_ref()
                    .is_some_and(|(mode, list)| list.contains(&source) == (*mode == FilterMode::Include));
                prop_assert_eq!(passes, wanted(&source));
            }
            prop_assert_eq!(filters.sources(), model.values().map(|(_, list)| list.len()).sum::<usize>());
        }
    }
}

#[test]
fn every_change_marks_its_group_and_no_other() {
    let mut filters = filters(8, 8);
    let other = Membership { group: Ipv4Addr::new(232, 9, 9, 9), ..member(1, PORT0) };
    filters.join(other).unwrap();
    let changed = |filters: &SourceFilters, since| -> BTreeSet<_> {
        (0..filters.places()).filter_map(|place| filters.changed_at(place, since)).collect()
    };
    let mut since = filters.changes();
    let mut check = |filters: &SourceFilters, expected: &[Ipv4Addr]| {
        assert!(filters.changes() > since);
        assert_eq!(changed(filters, since), expected.iter().copied().collect());
        since = filters.changes();
        assert!(changed(filters, since).is_empty());
    };
    filters.join_source(member(1, PORT0), A).unwrap();
    check(&filters, &[GROUP]);
    filters.join(member(2, PORT0)).unwrap();
    check(&filters, &[GROUP]);
    filters.block(member(2, PORT0), B).unwrap();
    check(&filters, &[GROUP]);
    filters.unblock(member(2, PORT0), B).unwrap();
    check(&filters, &[GROUP]);
    filters.set(member(2, PORT0), FilterMode::Include, &[C]).unwrap();
    check(&filters, &[GROUP]);
    filters.leave(member(1, PORT0)).unwrap();
    check(&filters, &[GROUP]);
    filters.leave(member(2, PORT0)).unwrap();
    check(&filters, &[]);
}
