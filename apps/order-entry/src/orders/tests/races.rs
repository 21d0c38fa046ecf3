//! The table of races in `../shared/trading.md`, section 9, line by line.

use super::*;

#[test]
fn fill_in_pending_cancel_is_booked_and_the_cancel_stays_pending() {
    let mut table = one_live();
    assert_eq!(table.request_cancel(0, 20), Ok(1));
    assert_eq!(fill(&mut table, 1, 1, 40).effect, Effect::Traded { qty: 40, price: PRICE });
    assert_eq!(order(&table), (State::PendingCancel, 100, 40, 60));
}

#[test]
fn whole_fill_in_pending_cancel_ends_the_order() {
    let mut table = one_live();
    table.request_cancel(0, 20).unwrap();
    assert_eq!(fill(&mut table, 1, 1, 100).ended, Some(End::Filled));
    // The superfluous cancel is refused, too late: nothing changes.
    assert!(by_id(&mut table, 1, VenueEvent::CancelRefused { reason: 0 }).is_duplicate);
    assert_eq!(order(&table), (State::Ended(End::Filled), 100, 100, 0));
}

#[test]
fn fill_after_canceled_is_booked_with_an_alarm() {
    let mut table = one_live();
    assert_eq!(canceled(&mut table, 1).ended, Some(End::Canceled));
    let outcome = fill(&mut table, 1, 1, 40);
    assert_eq!((outcome.effect, outcome.was_live), (Effect::Traded { qty: 40, price: PRICE }, false));
    assert_eq!(outcome.alarm, Some(Alarm::FillAfterEnd));
    assert_eq!(order(&table), (State::Ended(End::Canceled), 100, 40, 0));
}

#[test]
fn fill_of_the_old_id_in_replace_counts_against_the_new_total() {
    let mut table = one_live();
    replace(&mut table, 2, 150);
    fill(&mut table, 1, 1, 60);
    assert_eq!(order(&table), (State::PendingReplace, 100, 60, 40));
    assert_eq!(replaced(&mut table, 2).replaced, Some(2));
    assert_eq!(order(&table), (State::Live, 150, 60, 90));
    fill(&mut table, 1, 2, 10);
    assert_eq!(order(&table), (State::Live, 150, 70, 80));
}

#[test]
fn replace_below_what_has_traded_is_dead() {
    let mut table = one_live();
    replace(&mut table, 2, 50);
    fill(&mut table, 1, 1, 60);
    assert_eq!(replaced(&mut table, 2).ended, Some(End::Filled));
    assert_eq!(order(&table), (State::Ended(End::Filled), 50, 60, 0));
}

#[test]
fn replace_refused_late_leaves_the_last_accepted_terms() {
    let mut table = one_live();
    replace(&mut table, 2, 150);
    fill(&mut table, 1, 1, 30);
    assert_eq!(replace_refused(&mut table, 2).effect, Effect::ReplaceRefused { id: 2 });
    assert_eq!(order(&table), (State::Live, 100, 30, 70));
}

#[test]
fn order_filled_in_replace_ends_when_the_replace_is_refused() {
    let mut table = one_live();
    replace(&mut table, 2, 150);
    assert_eq!(fill(&mut table, 1, 1, 100).ended, None, "the replace may have come first");
    assert_eq!(order(&table), (State::PendingReplace, 100, 100, 0));
    assert_eq!(replace_refused(&mut table, 2).ended, Some(End::Filled));
}

#[test]
fn order_filled_in_replace_ends_at_once_where_the_venue_is_silent() {
    let mut table = small(OrderRules { full_fill_voids_replaces: true, ..OrderRules::default() });
    table.open(1, (STOCK, Side::Buy), (100, PRICE), 10).unwrap();
    replace(&mut table, 2, 150);
    assert_eq!(fill(&mut table, 1, 1, 100).ended, Some(End::Filled));
}

#[test]
fn second_replace_builds_on_the_last_accepted_id() {
    let mut table = one_live();
    assert_eq!(replace(&mut table, 2, 150), 1);
    assert_eq!(replace(&mut table, 3, 200), 1, "2 is not accepted yet");
    replaced(&mut table, 2);
    assert_eq!(replace(&mut table, 4, 250), 2);
    replace_refused(&mut table, 3);
    replaced(&mut table, 4);
    assert_eq!(order(&table), (State::Live, 250, 0, 250));
    assert_eq!(table.request_cancel(0, 20), Ok(4));
}

#[test]
fn second_replace_accepted_voids_the_first() {
    let mut table = one_live();
    replace(&mut table, 2, 150);
    replace(&mut table, 3, 200);
    assert_eq!(replaced(&mut table, 3).replaced, Some(3));
    assert!(replaced(&mut table, 2).is_duplicate);
    assert_eq!(order(&table), (State::Live, 200, 0, 200));
}

#[test]
fn unsolicited_cancel_ends_the_order() {
    let mut table = one_live();
    let outcome = by_id(&mut table, 1, VenueEvent::Canceled { reason: b'S'.into() });
    assert_eq!((outcome.ended, outcome.alarm), (Some(End::Canceled), None));
}

#[test]
fn unsolicited_restatement_changes_the_terms() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 30);
    let outcome = by_id(&mut table, 1, VenueEvent::Restated { qty: 80, price: Price(5), reason: 0 });
    assert_eq!(outcome.effect, Effect::Restated { leaves: 50, price: Price(5) });
    assert_eq!(order(&table), (State::Live, 80, 30, 50));
}

#[test]
fn decrement_lowers_the_total_and_at_zero_ends_the_order() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 30);
    by_id(&mut table, 1, VenueEvent::Reduced { by: 20, reason: b'Q'.into() });
    assert_eq!(order(&table), (State::Live, 80, 30, 50));
    let outcome = by_id(&mut table, 1, VenueEvent::Reduced { by: 50, reason: b'Q'.into() });
    assert_eq!(outcome.ended, Some(End::Canceled));
}

#[test]
fn fill_with_a_known_execution_id_counts_once() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 30);
    let again = fill(&mut table, 1, 1, 30);
    assert_eq!((again.effect, again.is_duplicate), (Effect::None, true));
    // A drop copy names the venue's id.
    let fill = VenueEvent::Filled { exec: ExecId::from_number(1), qty: 30, price: PRICE };
    assert!(table.apply(OrderKey::Venue(901), &fill).is_duplicate);
    assert_eq!(order(&table), (State::Live, 100, 30, 70));
}

#[test]
fn both_orders_of_one_match_count() {
    let mut table = one_live();
    table.open(2, (STOCK, Side::Sell), (100, PRICE), 10).unwrap();
    fill(&mut table, 1, 1, 30);
    assert!(!fill(&mut table, 2, 1, 30).is_duplicate);
}

#[test]
fn bust_reverses_its_execution_once_and_the_executed_shares_stay() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 30);
    let bust = VenueEvent::Busted { exec: ExecId::from_number(1) };
    assert_eq!(by_id(&mut table, 1, bust).effect, Effect::Reversed { qty: 30, price: PRICE });
    assert!(by_id(&mut table, 1, bust).is_duplicate);
    assert_eq!(order(&table), (State::Live, 100, 30, 70));
    assert_eq!(table.get(0).unwrap().busted(), 30);
}

#[test]
fn bust_of_an_unknown_execution_is_an_alarm() {
    let mut table = one_live();
    let outcome = by_id(&mut table, 1, VenueEvent::Busted { exec: ExecId::from_number(1) });
    assert_eq!((outcome.effect, outcome.alarm), (Effect::None, Some(Alarm::UnknownExecution)));
    assert!(table.is_blocked(STOCK), "shares that are not known are too many, or too few");
}

#[test]
fn correction_replaces_its_execution_once() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 30);
    let (exec, new_exec) = (ExecId::from_number(1), ExecId::from_number(2));
    let correct = VenueEvent::Corrected { exec, new_exec, qty: 20, price: Price(7) };
    let effect = Effect::Corrected { old: (30, PRICE), new: (20, Price(7)) };
    assert_eq!(by_id(&mut table, 1, correct).effect, effect);
    assert!(by_id(&mut table, 1, correct).is_duplicate);
    assert_eq!((order(&table).2, table.get(0).unwrap().busted()), (30, 10));
}

#[test]
fn execution_is_found_by_the_ids_of_all_its_corrections() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 30);
    let correct = |exec, new_exec, qty| {
        let (exec, new_exec) = (ExecId::from_number(exec), ExecId::from_number(new_exec));
        VenueEvent::Corrected { exec, new_exec, qty, price: PRICE }
    };
    by_id(&mut table, 1, correct(1, 2, 20));
    let effect = Effect::Corrected { old: (20, PRICE), new: (10, PRICE) };
    assert_eq!(by_id(&mut table, 1, correct(2, 3, 10)).effect, effect);
    assert!(by_id(&mut table, 1, correct(1, 2, 20)).is_duplicate, "it comes again, and is over");
    assert_eq!(table.execution(OrderKey::Client(1), ExecId::from_number(1)), Some((10, PRICE, false)));
    let bust = VenueEvent::Busted { exec: ExecId::from_number(3) };
    assert_eq!(by_id(&mut table, 1, bust).effect, Effect::Reversed { qty: 10, price: PRICE });
    assert!(by_id(&mut table, 1, correct(1, 4, 20)).is_duplicate, "busted is busted");
}

#[test]
fn corrections_of_more_executions_than_are_kept_lead_nowhere_else() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 1);
    for id in 1..100 {
        let (exec, new_exec) = (ExecId::from_number(id), ExecId::from_number(id + 1));
        let outcome = by_id(&mut table, 1, VenueEvent::Corrected { exec, new_exec, qty: 1, price: Price(id as i64) });
        assert_eq!(outcome.alarm, None);
    }
    assert_eq!(table.execution(OrderKey::Client(1), ExecId::from_number(84)), None);
    assert_eq!(table.execution(OrderKey::Client(1), ExecId::from_number(85)), Some((1, Price(99), false)));
}

#[test]
fn acknowledgment_after_a_fill_is_tolerated() {
    let mut table = one_sent();
    fill(&mut table, 1, 1, 40);
    assert_eq!(order(&table), (State::Live, 100, 40, 60));
    let outcome = by_id(&mut table, 1, VenueEvent::Accepted { venue_id: 901 });
    assert_eq!((outcome.is_duplicate, outcome.alarm), (true, None));
    assert_eq!(table.find(OrderKey::Venue(901)), Some(0));
}

#[test]
fn fill_of_a_replaces_id_accepts_it() {
    let mut table = one_live();
    replace(&mut table, 2, 150);
    let outcome = fill(&mut table, 2, 1, 120);
    assert_eq!((outcome.replaced, outcome.alarm), (Some(2), None));
    assert_eq!(order(&table), (State::Live, 150, 120, 30));
    assert!(replaced(&mut table, 2).is_duplicate);
}

#[test]
fn fill_beyond_the_total_accepts_the_replace_that_covers_it() {
    let mut table = one_live();
    replace(&mut table, 2, 150);
    assert_eq!(fill(&mut table, 1, 1, 120).replaced, Some(2));
    assert_eq!(order(&table), (State::Live, 150, 120, 30));
}

#[test]
fn fill_beyond_every_total_is_an_alarm() {
    let mut table = one_live();
    let outcome = fill(&mut table, 1, 1, 120);
    assert_eq!((outcome.alarm, outcome.ended), (Some(Alarm::Overfill), Some(End::Filled)));
}

#[test]
fn silence_asks_for_the_status_and_assumes_nothing() {
    let mut table = one_sent();
    assert_eq!(table.poll_unanswered(1_009, 1_000), None);
    assert_eq!(table.poll_unanswered(1_010, 1_000), Some(Query { slot: 0, id: 1 }));
    assert_eq!(table.poll_unanswered(1_011, 1_000), None, "one query a timeout");
    assert_eq!(order(&table), (State::PendingNew, 100, 0, 100));
    assert!(table.get(0).unwrap().is_in_doubt());
    by_id(&mut table, 1, VenueEvent::Accepted { venue_id: 901 });
    assert!(!table.get(0).unwrap().is_in_doubt());
}

#[test]
fn order_in_doubt_may_be_canceled_again() {
    let mut table = one_live();
    table.request_cancel(0, 20).unwrap();
    assert_eq!(table.request_cancel(0, 30), Err(RequestError::CancelPending));
    table.poll_unanswered(1_020, 1_000).unwrap();
    assert_eq!(table.request_cancel(0, 1_030), Ok(1));
}

fn status(table: &mut OrderTable, is_live: bool, cum: u32, leaves: u32) -> Outcome {
    by_id(table, 1, VenueEvent::Status(VenueStatus { is_live, cum, leaves }))
}

#[test]
fn restart_leaves_orders_in_doubt_until_the_venue_agrees() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 40);
    table.restart();
    assert!(table.get(0).unwrap().is_in_doubt());
    assert_eq!(status(&mut table, true, 40, 60).alarm, None);
    assert!(!table.get(0).unwrap().is_in_doubt());
}

#[test]
fn executions_that_one_side_lacks_block_the_instrument() {
    let mut table = one_live();
    table.restart();
    assert_eq!(status(&mut table, true, 40, 60).alarm, Some(Alarm::Differs));
    assert!(table.is_blocked(STOCK));
    assert_eq!(table.open(2, (STOCK, Side::Buy), (1, PRICE), 20), Err(RequestError::Blocked));
    assert_eq!(table.request_replace(0, 2, (1, PRICE), 20), Err(RequestError::Blocked));
    assert_eq!(table.request_cancel(0, 20), Ok(1), "a cancel lowers the risk");
    table.unblock(STOCK);
    assert_eq!(table.open(2, (STOCK, Side::Buy), (1, PRICE), 20), Ok(1));
}

#[test]
fn order_that_was_canceled_while_nobody_listened_is_no_difference() {
    let mut table = one_live();
    fill(&mut table, 1, 1, 40);
    table.restart();
    let outcome = status(&mut table, false, 40, 0);
    assert_eq!((outcome.ended, outcome.alarm), (Some(End::Canceled), None));
}

#[test]
fn order_that_the_venue_never_had_was_rejected() {
    let mut table = one_sent();
    assert_eq!(status(&mut table, false, 0, 0).ended, Some(End::Rejected));
}

#[test]
fn order_that_lives_only_at_the_venue_lives_and_blocks() {
    let mut table = one_live();
    canceled(&mut table, 1);
    let outcome = status(&mut table, true, 0, 100);
    assert_eq!((outcome.effect, outcome.alarm), (Effect::Revived { leaves: 100, price: PRICE }, Some(Alarm::Differs)));
    assert_eq!(order(&table), (State::Live, 100, 0, 100));
}

#[test]
fn replace_that_is_accepted_after_the_end_revives_the_order() {
    let mut table = one_live();
    replace(&mut table, 2, 150);
    canceled(&mut table, 1);
    let outcome = replaced(&mut table, 2);
    assert_eq!((outcome.effect, outcome.alarm), (Effect::Revived { leaves: 150, price: PRICE }, Some(Alarm::Revived)));
    assert_eq!(order(&table), (State::Live, 150, 0, 150));
}

#[test]
fn event_of_an_unknown_order_is_an_alarm() {
    let mut table = one_live();
    assert_eq!(fill(&mut table, 7, 1, 40).alarm, Some(Alarm::UnknownOrder));
}

#[test]
fn reject_of_a_live_order_is_an_alarm() {
    let mut table = one_live();
    let outcome = by_id(&mut table, 1, VenueEvent::Rejected { reason: 0 });
    assert_eq!((outcome.ended, outcome.alarm), (Some(End::Rejected), Some(Alarm::RejectOfLive)));
}
