use super::*;

fn open(table: &mut OrderTable, id: u64) -> Result<usize, RequestError> {
    table.open(id, (STOCK, Side::Buy), (100, PRICE), 10)
}

#[test]
fn client_id_is_used_once() {
    let mut table = one_live();
    assert_eq!(open(&mut table, 1), Err(RequestError::IdUsed));
    replace(&mut table, 2, 150);
    assert_eq!(open(&mut table, 2), Err(RequestError::IdUsed));
}

#[test]
fn full_table_takes_no_order() {
    let mut table = small(OrderRules::default());
    (0..8).for_each(|id| assert_eq!(open(&mut table, id), Ok(id as usize)));
    assert_eq!((table.next_slot(), open(&mut table, 9)), (None, Err(RequestError::Full)));
}

#[test]
fn longest_ended_order_makes_room_and_is_forgotten() {
    let mut table = small(OrderRules::default());
    (0..8).for_each(|id| assert_eq!(open(&mut table, id), Ok(id as usize)));
    canceled(&mut table, 5);
    canceled(&mut table, 2);
    assert_eq!(fill(&mut table, 5, 1, 10).alarm, Some(Alarm::FillAfterEnd));
    assert_eq!((table.next_slot(), open(&mut table, 9)), (Some(5), Ok(5)));
    assert_eq!(fill(&mut table, 5, 2, 10).alarm, Some(Alarm::UnknownOrder));
    assert_eq!(fill(&mut table, 9, 1, 10).effect, Effect::Traded { qty: 10, price: PRICE });
    assert_eq!(open(&mut table, 10), Ok(2));
}

#[test]
fn revived_order_keeps_its_slot() {
    let mut table = small(OrderRules::default());
    (0..8).for_each(|id| assert_eq!(open(&mut table, id), Ok(id as usize)));
    canceled(&mut table, 0);
    let status = VenueStatus { is_live: true, cum: 0, leaves: 100 };
    by_id(&mut table, 0, VenueEvent::Status(status));
    table.unblock(STOCK);
    assert_eq!(open(&mut table, 9), Err(RequestError::Full));
    canceled(&mut table, 0);
    assert_eq!(open(&mut table, 9), Ok(0));
}

#[test]
fn oldest_id_of_a_long_chain_is_forgotten() {
    let mut table = one_live();
    for id in 2..10 {
        replace(&mut table, id, 100);
        replaced(&mut table, id);
    }
    assert_eq!(fill(&mut table, 1, 1, 10).alarm, Some(Alarm::UnknownOrder));
    assert_eq!(fill(&mut table, 2, 1, 10).alarm, None);
}

/// The venue uses its ids again, and the first order gets more of them than it keeps.
#[test]
fn venue_id_that_another_order_was_given_since_is_not_forgotten_with_the_first_ones_oldest() {
    let mut table = one_live();
    assert_eq!(open(&mut table, 20), Ok(1));
    by_id(&mut table, 20, VenueEvent::Accepted { venue_id: 901 });
    for id in 2..8 {
        replace(&mut table, id, 100);
        replaced(&mut table, id);
    }
    assert_eq!(table.find(OrderKey::Venue(901)), Some(1));
}

#[test]
fn order_that_was_not_sent_ends() {
    let mut table = one_sent();
    table.abandon(0);
    assert_eq!(order(&table), (State::Ended(End::Unsent), 100, 0, 0));
    assert_eq!(table.live_count(), 0);
}

#[test]
fn ended_order_takes_no_request() {
    let mut table = one_live();
    canceled(&mut table, 1);
    assert_eq!(table.request_cancel(0, 20), Err(RequestError::Ended));
    assert_eq!(table.request_replace(0, 2, (100, PRICE), 20), Err(RequestError::Ended));
}

#[test]
fn fifth_unanswered_replace_is_not_taken() {
    let mut table = one_live();
    (2..6).for_each(|id| {
        replace(&mut table, id, 100);
    });
    assert_eq!(table.request_replace(0, 6, (100, PRICE), 20), Err(RequestError::ReplacesPending));
}

#[test]
fn short_texts_and_numbers_make_different_execution_ids() {
    let ids = [
        ExecId::from_text(b""),
        ExecId::from_text(b"1"),
        ExecId::from_text(b"1\0"),
        ExecId::from_text(b"123456789012345"),
        ExecId::from_text(b"1234567890123456"),
        ExecId::from_text(b"1234567890123457"),
        ExecId::from_number(u64::from(b'1')),
    ];
    for (place, id) in ids.iter().enumerate() {
        assert!(!ids[..place].contains(id), "{place}");
    }
}
