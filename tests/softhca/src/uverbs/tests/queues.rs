//! Queues as clients make them, and invalid ones.

use super::{opened, words, wrong};
use crate::hca::Errno;
use crate::uverbs::Protocol;
use crate::uverbs::testing::{Client, Command, extended};

/// A client with a domain, a CQ and a QP that uses them.
fn with_qp() -> (Client, [u32; 3]) {
    let mut client = opened(Protocol::Write);
    let pd = client.pd().unwrap();
    let cq = client.cq(64, None, 0x1000).unwrap();
    let qp = client.qp(pd, cq, 8).unwrap();
    (client, [pd, cq, qp])
}

fn modify(client: &mut Client, qp: u32, mask: u32, state: u8) -> Result<(), Errno> {
    let mut core = vec![0; 112];
    core[64..68].copy_from_slice(&qp.to_ne_bytes());
    core[68..72].copy_from_slice(&mask.to_ne_bytes());
    (core[96], core[104]) = (state, 1);
    client.command(&Command { number: 26, core, ..Command::default() }).map(drop)
}

#[test]
fn queues_are_not_destroyed_under_their_users() {
    let (mut client, [pd, cq, qp]) = with_qp();
    let destroy = |client: &mut Client, number, handle: u32, room| {
        let core = words(&[handle, 0]);
        client.command(&Command { number, core, core_room: room, ..Command::default() }).map(|(core, _)| core)
    };
    assert_eq!(wrong(destroy(&mut client, 20, cq, 8)), libc::EBUSY);
    assert_eq!(wrong(client.destroy(4, pd)), libc::EBUSY);
    assert_eq!(destroy(&mut client, 27, qp, 4), Ok(words(&[0])));
    assert_eq!(destroy(&mut client, 20, cq, 8), Ok(words(&[0, 0])));
    assert_eq!(client.destroy(4, pd), Ok(()));
}

#[test]
fn qp_goes_from_state_to_state() {
    let (mut client, [.., qp]) = with_qp();
    assert_eq!(wrong(modify(&mut client, qp, 1, 2)), libc::EINVAL, "not ready without INIT");
    assert_eq!(wrong(modify(&mut client, qp, 1, 1)), libc::EINVAL, "INIT wants the port");
    assert_eq!(wrong(modify(&mut client, qp, 1 | 1 << 4, 1)), libc::EINVAL, "raw packets have no partition key");
    assert_eq!(wrong(modify(&mut client, qp, 1, 9)), libc::EINVAL);
    assert_eq!(wrong(modify(&mut client, qp, 1 << 25, 0)), libc::EOPNOTSUPP, "the rate goes by the extended command");
    assert_eq!(modify(&mut client, qp, 1 | 1 << 5, 1), Ok(()));
    assert_eq!(modify(&mut client, qp, 1, 2), Ok(()));
    assert_eq!(modify(&mut client, qp, 1, 3), Ok(()));
    let query = Command { number: 25, core: words(&[qp, 1]), core_room: 128, ..Command::default() };
    let (core, _) = client.command(&query).unwrap();
    assert_eq!((core[108], Client::word(&core, 64)), (3, 8), "state and limit");
}

#[test]
fn each_qp_rings_on_a_register_of_its_own_while_there_are_some() {
    let (mut client, [pd, cq, first]) = with_qp();
    let register = |client: &mut Client| {
        let command = client.qp_command(pd, cq, 8);
        let (core, driver) = client.command(&command).unwrap();
        (Client::word(&core, 0), Client::word(&driver, 0))
    };
    let others: Vec<(u32, u32)> = (0..15).map(|_| register(&mut client)).collect();
    let registers: Vec<u32> = others.iter().map(|(_, register)| *register).collect();
    assert_eq!(registers, [4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29, 0], "four are counted a page");
    let core = words(&[first, 0]);
    client.command(&Command { number: 27, core, core_room: 4, ..Command::default() }).unwrap();
    assert_eq!(register(&mut client).1, 1, "the first one's");
}

#[test]
fn qp_without_a_right_is_refused_before_it_is_made() {
    let (mut client, [pd, cq, _]) = with_qp();
    client.process.raw = false;
    assert_eq!(wrong(client.qp(pd, cq, 8)), libc::EPERM);
    client.process.raw = true;
    let mut of_domain = client.qp_command(pd, cq, 8);
    of_domain.core[45] = 9; // IBV_QPT_XRC_SEND
    assert_eq!(wrong(client.command(&of_domain)), libc::EOPNOTSUPP);
    let mut without_index = client.qp_command(pd, cq, 8);
    without_index.driver[32..36].copy_from_slice(&0xff_ffff_u32.to_ne_bytes());
    assert_eq!(wrong(client.command(&without_index)), libc::EINVAL);
    let mut page_of_another = client.qp_command(pd, cq, 8);
    page_of_another.driver[28..32].copy_from_slice(&(1_u32 << 10).to_ne_bytes());
    page_of_another.driver[36..40].copy_from_slice(&99_u32.to_ne_bytes());
    assert_eq!(wrong(client.command(&page_of_another)), libc::EINVAL);
    assert_eq!(client.session.objects(), 3);
}

/// Bytes of a response, as a command returns it.
type Answer = Result<Vec<u8>, Errno>;

/// Makes a WQ of 8 WQEs of 16 bytes with this user index.
fn create_wq(client: &mut Client, pd: u32, cq: u32, user_index: u32, create_flags: u32) -> Answer {
    let (ring, doorbell) = (client.memory.reserve(4096, 4096), client.memory.reserve(64, 64));
    let core = [words(&[0, 0]), vec![9; 8], words(&[pd, cq, 8, 1, create_flags, 0])].concat();
    let addresses = [ring, doorbell].iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>();
    let driver = [addresses, words(&[8, 4, user_index, 0, 0, 0, 0, 0])].concat();
    let command = Command { number: extended(52), core, driver, core_room: 24, driver_room: 8 };
    client.command(&command).map(|(core, _)| core)
}

fn create_table(client: &mut Client, log: u32, wqs: &[u32]) -> Answer {
    let core = [words(&[0, log]), words(wqs)].concat();
    client.command(&Command { number: extended(55), core, core_room: 16, ..Command::default() }).map(|(core, _)| core)
}

#[test]
fn table_keeps_its_wqs() {
    let (mut client, [pd, cq, _]) = with_qp();
    let created = create_wq(&mut client, pd, cq, 5, 0).unwrap();
    assert_eq!(Client::word(&created, 4), 24, "response_length");
    let wq = Client::word(&created, 8);
    let table = Client::word(&create_table(&mut client, 1, &[wq, wq]).unwrap(), 8);
    let destroy_wq = Command { number: extended(54), core: words(&[0, wq]), core_room: 16, ..Command::default() };
    assert_eq!(wrong(client.command(&destroy_wq)), libc::EBUSY);
    let destroy_table = Command { number: extended(56), core: words(&[0, table]), ..Command::default() };
    assert!(client.command(&destroy_table).is_ok());
    assert_eq!(client.command(&destroy_wq).unwrap().0, words(&[0, 16, 0, 0]));
}

#[test]
fn table_has_as_many_wqs_as_it_says() {
    let (mut client, [pd, cq, qp]) = with_qp();
    let wq = Client::word(&create_wq(&mut client, pd, cq, 5, 0).unwrap(), 8);
    assert_eq!(wrong(create_table(&mut client, 2, &[wq, wq])), libc::ENOSPC);
    assert_eq!(wrong(create_table(&mut client, 14, &[wq, wq])), libc::EINVAL);
    assert_eq!(wrong(create_table(&mut client, 1, &[wq, qp])), libc::EINVAL, "a QP is no WQ");
    assert_eq!(wrong(create_table(&mut client, 0, &[wq, 1])), libc::EOPNOTSUPP, "what follows must be nothing");
    assert!(create_table(&mut client, 0, &[wq, 0]).is_ok());
}

#[test]
fn wq_is_refused_what_it_cannot_have() {
    let (mut client, [pd, cq, _]) = with_qp();
    assert_eq!(wrong(create_wq(&mut client, pd, cq, 0xff_ffff, 0)), libc::EINVAL, "no user index");
    assert_eq!(wrong(create_wq(&mut client, pd, cq, 5, 1 << 2)), libc::EOPNOTSUPP, "DELAY_DROP");
    assert_eq!(wrong(create_wq(&mut client, cq, pd, 5, 0)), libc::EINVAL, "mistaken for each other");
    assert_eq!(client.session.objects(), 3);
}

#[test]
fn wq_goes_from_state_to_state() {
    let (mut client, [pd, cq, _]) = with_qp();
    let wq = Client::word(&create_wq(&mut client, pd, cq, 5, 0).unwrap(), 8);
    let mut modify = |mask, state, current, flags, flags_mask| {
        let core = words(&[mask, wq, state, current, flags, flags_mask]);
        wrong(client.command(&Command { number: extended(53), core, driver: vec![0; 8], ..Command::default() }))
    };
    assert_eq!(modify(0, 1, 0, 0, 0), libc::EINVAL, "nothing named");
    assert_eq!(modify(1, 3, 0, 0, 0), libc::EINVAL, "no such state");
    assert_eq!(modify(1 | 2, 1, 1, 0, 0), libc::EINVAL, "it is not what the client believes");
    assert_eq!(modify(1 | 2, 1, 0, 0, 0), 0);
    assert_eq!(modify(4, 0, 0, 2, 2), libc::EOPNOTSUPP, "only stripping can change");
    assert_eq!(modify(4, 0, 0, 1, 1), 0);
}

#[test]
fn rss_takes_a_key_of_forty_bytes() {
    let (mut client, [pd, cq, _]) = with_qp();
    let wq = Client::word(&create_wq(&mut client, pd, cq, 5, 0).unwrap(), 8);
    let table = Client::word(&create_table(&mut client, 0, &[wq, 0]).unwrap(), 8);
    let mut create = |key_len: u8, fields: u8, max_recv_wr: u32| {
        let limits = words(&[pd, 0, 0, 0, 0, max_recv_wr, 0, 0, 0]);
        let core = [vec![7; 8], limits, vec![0, 8, 0, 0], words(&[1, 0, table, 0])].concat();
        let key = [vec![0x6d; 40], vec![0; 88]].concat();
        let driver = [vec![fields, 0, 0, 0, 0, 0, 0, 0, 1, key_len], vec![0; 6], key, vec![0; 8]].concat();
        wrong(client.command(&Command { number: extended(24), core, driver, core_room: 40, driver_room: 40 }))
    };
    assert_eq!(create(40, 0xff, 0), libc::EINVAL, "TCP and UDP at the same time");
    assert_eq!(create(39, 3, 0), libc::EINVAL);
    assert_eq!(create(200, 3, 0), libc::EINVAL);
    assert_eq!(create(40, 3, 8), libc::EINVAL, "its WQs have the rings");
    assert_eq!(create(40, 3, 0), 0);
}
