//! Frames and calls as clients send them, and invalid ones.
#![allow(clippy::unwrap_used)] // a panic here is the report

mod queues;

use proptest::prelude::*;

use super::testing::{Attribute, Client, Command, MEMORY, VERBS, extended};
use super::{Mapping, Protocol};
use crate::hca::{Config, Errno, Event, EventKind};

fn client(protocol: Protocol) -> Client {
    Client::new(protocol, Config::default())
}

/// A client with a context.
fn opened(protocol: Protocol) -> Client {
    let mut client = client(protocol);
    client.open().unwrap();
    client
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn wrong<T>(answer: Result<T, Errno>) -> i32 {
    answer.err().map_or(0, |Errno(number)| number)
}

#[test]
fn nothing_works_before_a_context_is_made() {
    let mut client = client(Protocol::Ioctl);
    assert_eq!(wrong(client.pd()), libc::EINVAL);
    assert_eq!(wrong(client.ioctl(1, 0, &[Attribute::Number(0, 0)])), libc::ENOENT, "the handle is not there either");
    assert_eq!(wrong(client.mmap(0x500, false)), libc::EINVAL);
    assert!(client.session.async_descriptor().is_none());
}

#[test]
fn context_is_made_once() {
    let mut client = opened(Protocol::Write);
    assert_eq!(wrong(client.open()), libc::EINVAL);
}

#[test]
fn older_kernel_knows_no_ioctl() {
    let mut client = opened(Protocol::Write);
    assert_eq!(wrong(client.ioctl(0, 2, &[])), libc::ENOTTY);
    let mut client = opened(Protocol::Ioctl);
    assert_eq!(wrong(client.raw_ioctl(VERBS + 1, MEMORY)), libc::ENOTTY);
}

/// libibverbs uses this to find out whether commands go through `ioctl`.
#[test]
fn tunnel_without_a_request_says_enospc() {
    let mut client = client(Protocol::Ioctl);
    let number = Attribute::In(2, 0_u64.to_ne_bytes().to_vec());
    assert_eq!(wrong(client.ioctl(0, 0, &[number])), libc::ENOSPC);
}

#[test]
fn older_protocol_brings_doorbell_pages_and_an_async_descriptor() {
    let mut client = client(Protocol::Write);
    let driver = words(&[16, 4, 0, 0, 1, 0, 3, 0]);
    let command = Command { number: 0, driver, core_room: 8, driver_room: 72, ..Command::default() };
    let (core, driver) = client.command(&command).unwrap();
    assert_eq!(client.session.async_descriptor(), Some(Client::word(&core, 0) as i32));
    assert_eq!(Client::word(&driver, 8), 16, "registers, though the client could do without");
    assert!((0..8).all(|page| matches!(client.mmap(page, true), Ok(Mapping::Uar(_)))));
    assert_eq!(wrong(client.mmap(8, true)), libc::EINVAL);
    assert!(matches!(client.mmap(0x600, true), Ok(Mapping::Uar(_))));
    assert_eq!(wrong(client.mmap(0x600, true)), libc::EINVAL, "mapped already");
}

#[test]
fn nic_has_so_many_doorbell_pages() {
    for (uars_max, expected) in [(9, 0), (8, libc::ENOSPC)] {
        let mut client = Client::new(Protocol::Write, Config { uars_max, ..Config::default() });
        client.open().unwrap();
        assert_eq!(wrong(client.mmap(0x600, true)), expected);
        assert_eq!(wrong(client.mmap(0x601, true)), libc::ENOSPC);
    }
}

#[test]
fn newer_protocol_brings_doorbell_pages_one_by_one() {
    let mut client = client(Protocol::Ioctl);
    let driver = words(&[16, 4, 0, 0, 1, 0, 3, 0]);
    let open = [Attribute::Out(0, 4), Attribute::Out(1, 8), Attribute::In(0x1000, driver), Attribute::Out(0x1001, 72)];
    let answer = client.ioctl(0, 3, &open).unwrap();
    assert_eq!(Client::word(&answer[3], 8), 0);
    assert_eq!(wrong(client.mmap(0, true)), libc::EINVAL);
    let alloc = [
        Attribute::New(0x1000),
        Attribute::In(0x1001, 1_u64.to_ne_bytes().to_vec()),
        Attribute::Out(0x1002, 8),
        Attribute::Out(0x1003, 4),
        Attribute::Out(0x1004, 4),
    ];
    let answer = client.ioctl(0x1008, 0x1000, &alloc).unwrap();
    let page = u64::from_ne_bytes(answer[2].clone().try_into().unwrap()) / 4096;
    assert_eq!(client.mmap(page, true), Ok(Mapping::Uar(Client::word(&answer[4], 0))));
    let handle = i64::from(Client::word(&answer[0], 0));
    client.ioctl(0x1008, 0x1001, &[Attribute::Number(0x1000, handle)]).unwrap();
    assert_eq!(wrong(client.mmap(page, true)), libc::EINVAL);
}

#[test]
fn clocks_are_read_only() {
    let mut client = opened(Protocol::Write);
    assert_eq!(wrong(client.mmap(0x500, true)), libc::EPERM);
    assert_eq!(wrong(client.mmap(0x700, true)), libc::EPERM);
    assert_eq!(client.mmap(0x500, false), Ok(Mapping::CoreClock));
    assert_eq!(client.mmap(0x700, false), Ok(Mapping::ClockInfo));
}

#[test]
fn devx_is_refused_and_the_client_may_come_back_without() {
    let mut client = client(Protocol::Ioctl);
    let command = |flags| {
        let driver = words(&[16, 4, flags, 0, 1, 0, 3, 0]);
        Command { number: 0, driver, core_room: 8, driver_room: 72, ..Command::default() }
    };
    assert_eq!(wrong(client.command(&command(1))), libc::EOPNOTSUPP);
    assert!(client.command(&command(0)).is_ok());
}

#[test]
fn frame_lengths_must_agree_with_what_is_written() {
    let mut client = opened(Protocol::Write);
    let frame = Command { number: 3, core_room: 4, driver_room: 4, ..Command::default() }.frame(MEMORY);
    assert_eq!(client.write(&frame), Ok(frame.len()));
    assert_eq!(client.write(&frame[..frame.len() - 4]), Err(Errno(libc::EINVAL)));
    assert_eq!(client.write(&[frame.clone(), vec![0; 4]].concat()), Err(Errno(libc::EINVAL)));
    assert_eq!(client.write(&frame[..7]), Err(Errno(libc::EINVAL)));
    assert_eq!(client.write(&[]), Err(Errno(libc::EINVAL)));
    let mut short_answer = frame;
    short_answer[6..8].copy_from_slice(&0_u16.to_ne_bytes());
    assert_eq!(client.write(&short_answer), Err(Errno(libc::ENOSPC)));
}

#[test]
fn unknown_commands_are_told_apart_from_nonsense() {
    let mut client = opened(Protocol::Write);
    let command = |number| Command { number, core: vec![0; 64], ..Command::default() };
    assert_eq!(wrong(client.command(&command(39))), libc::EOPNOTSUPP, "CREATE_XSRQ");
    assert_eq!(wrong(client.command(&command(extended(99)))), libc::EOPNOTSUPP);
    assert_eq!(wrong(client.command(&command(1 << 8))), libc::EINVAL);
}

#[test]
fn unknown_methods_and_attributes_are_told_as_the_kernel_does() {
    let mut client = opened(Protocol::Ioctl);
    assert_eq!(wrong(client.ioctl(0, 5, &[])), libc::EPROTONOSUPPORT, "QUERY_GID_TABLE");
    let port = [Attribute::In(0, vec![1]), Attribute::Out(1, 48)];
    assert!(client.ioctl(0, 2, &port).is_ok());
    assert_eq!(wrong(client.ioctl(0, 2, &port[..1])), libc::EINVAL, "a mandatory one is missing");
    let twice = [port[0].clone(), port[0].clone(), port[1].clone()];
    assert_eq!(wrong(client.ioctl(0, 2, &twice)), libc::EINVAL);
    let more = [port[0].clone(), port[1].clone(), Attribute::In(9, vec![1])];
    assert_eq!(wrong(client.ioctl(0, 2, &more)), libc::EPROTONOSUPPORT);
    let long = [Attribute::In(0, vec![1, 1]), port[1].clone()];
    assert_eq!(wrong(client.ioctl(0, 2, &long)), libc::EOPNOTSUPP);
    let short = [port[0].clone(), Attribute::Out(1, 40)];
    assert_eq!(wrong(client.ioctl(0, 2, &short)), libc::EINVAL);
}

#[test]
fn answer_that_cannot_be_written_makes_nothing() {
    let mut client = opened(Protocol::Write);
    let command = Command { number: 3, core_room: 4, driver_room: 4, ..Command::default() };
    assert_eq!(client.write(&command.frame(8)), Err(Errno(libc::EFAULT)));
    assert_eq!(client.pd(), Ok(0), "the first handle is still to be had");
}

#[test]
fn handles_are_of_one_session() {
    let mut client = opened(Protocol::Write);
    let pd = client.pd().unwrap();
    client.session = super::Session::new(Protocol::Write);
    client.open().unwrap();
    assert_eq!(wrong(client.destroy(4, pd)), libc::ENOENT);
}

#[test]
fn domain_is_not_given_back_under_its_region() {
    let mut client = opened(Protocol::Write);
    let pd = client.pd().unwrap();
    let region = register(&mut client, pd, MEMORY, 4096, 1).unwrap();
    assert_eq!(wrong(client.destroy(4, pd)), libc::EBUSY);
    client.destroy(13, region).unwrap();
    assert_eq!(client.destroy(4, pd), Ok(()));
    assert_eq!(wrong(client.destroy(4, pd)), libc::ENOENT);
}

fn register(client: &mut Client, pd: u32, start: u64, len: u64, access: u32) -> Result<u32, Errno> {
    let core = [start, len, start].iter().flat_map(|word| word.to_ne_bytes()).chain(words(&[pd, access])).collect();
    let (core, _) = client.command(&Command { number: 9, core, core_room: 12, ..Command::default() })?;
    Ok(Client::word(&core, 0))
}

#[test]
fn region_must_be_memory_within_the_limit() {
    let mut client = opened(Protocol::Write);
    let pd = client.pd().unwrap();
    assert_eq!(wrong(register(&mut client, pd, 4096, 4096, 1)), libc::EFAULT);
    assert_eq!(wrong(register(&mut client, pd, MEMORY, 0, 1)), libc::EINVAL);
    assert_eq!(wrong(register(&mut client, pd, MEMORY, u64::MAX, 1)), libc::EINVAL);
    assert_eq!(wrong(register(&mut client, pd, MEMORY, 4096, 2)), libc::EINVAL, "remote write without local write");
    assert_eq!(wrong(register(&mut client, pd + 1, MEMORY, 4096, 1)), libc::EINVAL);
    client.process.locked_len_max = Some(3 * 4096);
    let region = register(&mut client, pd, MEMORY + 4095, 2, 1).unwrap();
    assert_eq!(wrong(register(&mut client, pd, MEMORY, 8192, 1)), libc::ENOMEM);
    client.destroy(13, region).unwrap();
    assert!(register(&mut client, pd, MEMORY, 8192, 1).is_ok());
}

#[test]
fn cq_takes_channels_of_this_session_alone() {
    let mut client = opened(Protocol::Write);
    assert_eq!(wrong(client.cq(8, Some(3), 0)), libc::EBADF);
    let (core, _) = client.command(&Command { number: 17, core_room: 4, ..Command::default() }).unwrap();
    let channel = Client::word(&core, 0) as i32;
    assert!(client.cq(8, Some(channel), 0).is_ok());
    client.session.descriptor_closed(channel);
    assert_eq!(wrong(client.cq(8, Some(channel), 0)), libc::EBADF);
}

#[test]
fn events_go_to_the_session_that_they_are_of() {
    let mut client = opened(Protocol::Write);
    client.cq(8, None, 0x1234).unwrap();
    let event = |element, kind| Event { channel: None, element, kind };
    assert!(client.session.concerns(&event(0x1234, EventKind::CqError)));
    assert!(!client.session.concerns(&event(0x1235, EventKind::CqError)));
    assert!(!client.session.concerns(&event(0x1234, EventKind::QpFatal)));
    assert!(client.session.concerns(&event(1, EventKind::PortError)));
    assert!(!client.session.concerns(&Event { channel: Some(9), ..event(0x1234, EventKind::Completion) }));
}

#[test]
fn port_is_ethernet_and_up() {
    let mut client = opened(Protocol::Ioctl);
    let answer = client.ioctl(0, 2, &[Attribute::In(0, vec![1]), Attribute::Out(1, 48)]).unwrap();
    let core = [1_u64.to_ne_bytes()].concat();
    let (plain, _) = client.command(&Command { number: 2, core, core_room: 40, ..Command::default() }).unwrap();
    assert_eq!(answer[1][..40], plain);
    let (state, mtu, link_layer) = (plain[26], plain[28], plain[37]);
    assert_eq!((state, mtu, link_layer), (4, 3, 2));
    let core = [2_u64.to_ne_bytes()].concat();
    assert_eq!(wrong(client.command(&Command { number: 2, core, core_room: 40, ..Command::default() })), libc::EINVAL);
}

#[test]
fn device_answers_alike_by_both_protocols() {
    let mut client = opened(Protocol::Ioctl);
    let command =
        Command { number: extended(1), core: vec![0; 8], core_room: 304, driver_room: 104, ..Command::default() };
    let (core, driver) = client.command(&command).unwrap();
    assert_eq!((Client::word(&core, 180), Client::word(&driver, 4)), (304, 104), "response lengths");
    assert_eq!(client.tunnel(&command), Ok((core, driver)));
    let short = Command { core_room: 184, driver_room: 0, ..command.clone() };
    assert_eq!(Client::word(&client.command(&short).unwrap().0, 180), 184);
    let too_short = Command { core_room: 176, ..short };
    assert_eq!(wrong(client.command(&too_short)), libc::ENOSPC);
}

/// Any command of the table, or nearly, with any bytes.
fn commands() -> impl Strategy<Value = Command> {
    let number = prop_oneof![0_u32..40, (0_u32..60).prop_map(extended), any::<u32>()];
    let bytes = || prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => 0_u8..4, 1 => any::<u8>()], 0..200);
    (number, bytes(), bytes(), 0_usize..320, 0_usize..120).prop_map(|(number, core, driver, core_room, driver_room)| {
        Command { number, core, driver, core_room: core_room / 8 * 8, driver_room: driver_room / 8 * 8 }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_bytes_are_answered_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
        let mut client = opened(Protocol::Ioctl);
        if let Err(Errno(number)) = client.write(&bytes) {
            prop_assert!(number > 0);
        }
        client.memory.put(MEMORY, &bytes);
        if let Err(Errno(number)) = client.raw_ioctl(VERBS, MEMORY) {
            prop_assert!(number > 0);
        }
    }

    #[test]
    fn refused_commands_make_nothing(commands in prop::collection::vec(commands(), 1..20)) {
        let mut client = opened(Protocol::Ioctl);
        for command in &commands {
            let before = client.session.objects();
            if client.command(command).is_err() {
                prop_assert_eq!(client.session.objects(), before);
            }
            let before = client.session.objects();
            if client.tunnel(command).is_err() {
                prop_assert_eq!(client.session.objects(), before);
            }
        }
        client.session.close(&mut client.hca);
        prop_assert_eq!(client.session.objects(), 0);
    }
}
