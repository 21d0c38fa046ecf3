//! Inconsistent limits, and options out of range: refused by name.

use super::line::{Line, MSS, options};
use super::*;

#[test]
fn limits_that_do_not_add_up_are_refused() {
    let good = TcpConfig::default();
    let wrong = [
        TcpConfig { connections_max: 0, ..good },
        TcpConfig { chunks_max: 0, ..good },
        TcpConfig { challenge_acks_per_second: 0, ..good },
        TcpConfig { resets_per_second: 0, ..good },
        TcpConfig { time_wait: Duration::ZERO, ..good },
        TcpConfig { reassembly_max: 0, ..good },
    ];
    assert_eq!(good.check(), Ok(()));
    for config in wrong {
        let error = config.check().unwrap_err();
        assert!(error.to_string().contains("TcpConfig::"), "{error}");
    }
}

/// A payload that is longer than a segment is split when it leaves, which takes a chunk more.
#[test]
fn single_chunk_that_nothing_longer_than_a_segment_leaves_by_is_refused_and_two_are_enough() {
    let error = TcpConfig { chunks_max: 1, ..TcpConfig::default() }.check().unwrap_err();
    assert_eq!(error, TcpConfigError::OutOfRange { name: "chunks_max", value: 1, min: 2, max: 1 << 28 });
    assert_eq!(error.to_string(), "TcpConfig::chunks_max is 1: raise it to 2 at least");
    let error = TcpConfig { retries: 0, listeners_max: 1 << 17, ..TcpConfig::default() }.check().unwrap_err();
    assert_eq!(error.to_string(), "TcpConfig::listeners_max is 131072: lower it to 65536 at most");

    let mut line = Line::of(TcpConfig { chunks_max: 2, ..TcpConfig::default() }, &options());
    line.send(2 * MSS);
    line.tick();
    line.ack(MSS);
    line.tick();
    let lens: Vec<_> = line.wire.sent.iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens, [MSS as usize; 2]);
}

#[test]
fn more_connections_than_the_machine_has_memory_for_are_an_error() {
    let config = TcpConfig { connections_max: 1 << 28, chunks_max: 1 << 28, ..TcpConfig::default() };
    assert_eq!(config.check(), Ok(()));
    if crate::proto::is_allocatable(config.bytes::<Vec<u8>>()) {
        return println!("this machine has the memory");
    }
    let Err(error) = Tcp::<Vec<u8>>::new(config, HashSeed::new(1, 2)) else { panic!("it was taken") };
    assert!(matches!(error, TcpConfigError::NoMemory { connections: 0x1000_0000, .. }));
    assert!(error.to_string().contains("MiB for 268435456 connections"), "{error}");
    assert!(error.to_string().contains("lower TcpConfig::connections_max"), "{error}");
}

#[test]
fn each_option_out_of_range_is_named_with_its_range() {
    let good = ConnectionOptions::default();
    let (zero, keepalive) = (Duration::ZERO, Keepalive::default());
    let wrong = [
        ("send_buffer", ConnectionOptions { send_buffer: 0, ..good }),
        ("send_buffer", ConnectionOptions { send_buffer: (1 << 30) + 1, ..good }),
        ("receive_buffer", ConnectionOptions { receive_buffer: 0, ..good }),
        ("receive_buffer", ConnectionOptions { receive_buffer: u32::MAX, ..good }),
        ("mss_max", ConnectionOptions { mss_max: Some(63), ..good }),
        ("rto_min", ConnectionOptions { rto_min: zero, ..good }),
        ("rto_min", ConnectionOptions { rto_min: Duration::from_secs(61), ..good }),
        ("ack_delay", ConnectionOptions { ack_delay: Duration::from_millis(500), ..good }),
        ("interactive_ack_delay", ConnectionOptions { interactive_ack_delay: Some(zero), ..good }),
        (
            "interactive_ack_delay",
            ConnectionOptions { interactive_ack_delay: Some(Duration::from_millis(256)), ..good },
        ),
        ("pacing_rate", ConnectionOptions { pacing_rate: Some(0), ..good }),
        ("ttl", ConnectionOptions { ttl: 0, ..good }),
        ("keepalive.count", ConnectionOptions { keepalive: Some(Keepalive { count: 0, ..keepalive }), ..good }),
        ("keepalive.idle", ConnectionOptions { keepalive: Some(Keepalive { idle: zero, ..keepalive }), ..good }),
        (
            "keepalive.interval",
            ConnectionOptions { keepalive: Some(Keepalive { interval: zero, ..keepalive }), ..good },
        ),
        ("user_timeout", ConnectionOptions { user_timeout: Some(zero), ..good }),
    ];
    assert_eq!(good.check(), Ok(()));
    let mut end = End::new(1);
    for (name, options) in wrong {
        let error = options.check().unwrap_err();
        assert_eq!(error.option, name);
        assert!(error.to_string().starts_with(name), "{error}");
        let listen = ListenOptions { connection: options, ..ListenOptions::default() };
        assert_eq!(end.tcp.listen(SERVER, &listen), Err(ListenError::Option(error)));
    }
}

#[test]
fn listener_out_of_range_is_refused_and_one_too_many_as_well() {
    let config = TcpConfig { listeners_max: 1, ..TcpConfig::default() };
    let mut tcp: Tcp<Vec<u8>> = Tcp::new(config, HashSeed::new(1, 2)).unwrap();
    let good = ListenOptions::default();
    let at = |ip: [u8; 4], port| SocketAddrV4::new(ip.into(), port);
    let wrong = [
        ("port", at([10, 0, 0, 2], 0), good),
        ("backlog", SERVER, ListenOptions { backlog: 0, ..good }),
        ("address", at([224, 0, 0, 1], 80), good),
        ("address", at([255; 4], 80), good),
        ("syns_per_second", SERVER, ListenOptions { syns_per_second: Some(0), ..good }),
        ("connections_max", SERVER, ListenOptions { connections_max: Some(0), ..good }),
        ("connections_per_source", SERVER, ListenOptions { connections_per_source: Some(0), ..good }),
    ];
    for (name, local, options) in wrong {
        let Err(ListenError::Option(error)) = tcp.listen(local, &options) else { panic!("{name} is in range") };
        assert_eq!(error.option, name);
    }
    tcp.listen(SERVER, &good).unwrap();
    assert_eq!(tcp.listen(at([10, 0, 0, 2], 81), &good), Err(ListenError::TooMany { limit: 1 }));
}

#[test]
fn pool_that_is_too_small_for_the_chunks_is_told_with_what_is_needed() {
    let config = TcpConfig { chunks_max: 1000, ..TcpConfig::default() };
    assert_eq!(config.check_pool(1500, 500), Ok(()));
    let error = config.check_pool(1499, 500).unwrap_err();
    assert_eq!(error, TcpConfigError::PoolTooSmall { buffers: 1499, needed: 1500 });
    assert!(error.to_string().contains("lower TcpConfig::chunks_max"), "{error}");
}
