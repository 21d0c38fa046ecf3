//! Configurations of the feed handler and of the order gateway, and rules: a file is taken and
//! makes sense, or is refused in one sentence that says where.

use std::collections::BTreeSet;
use std::io::Write;

use feed_handler::config::Config;
use order_gateway::LimitsFile;
use sockets::rules::{Names, Query, Rules, Traffic, parse_broker};
use tempfile::NamedTempFile;
use wirepath::proto::Ipv4Prefix;
use wirepath::worker::live::{IgmpMode, LiveConfig, Owner};

/// A file of any content.
pub(super) fn feed_config(data: &[u8]) {
    match Config::read(written(data).path()) {
        Ok(config) => check(&config),
        Err(error) => refused(&error.to_string(), data),
    }
}

/// The order gateway's configuration.
pub(super) fn gateway_config(data: &[u8]) {
    match order_gateway::Config::read(written(data).path()) {
        Ok(config) => {
            assert!(config.feed().count() <= 2);
            let _ = (config.wire(), config.drop_copy(), config.recovery(), config.kill_line());
        }
        Err(error) => refused(&error.to_string(), data),
    }
}

/// Its limits.
pub(super) fn gateway_limits(data: &[u8]) {
    match LimitsFile::read(written(data).path()) {
        Ok(limits) => {
            let instruments = limits.instruments();
            let positions = limits.opening_positions();
            assert!(positions.into_iter().all(|(idx, _)| (idx.0 as usize) < instruments.len()));
            let _ = limits.limits();
        }
        Err(error) => refused(&error.to_string(), data),
    }
}

/// The project's own examples.
pub(super) fn gateway_config_seeds() -> Vec<Vec<u8>> {
    let example = include_str!("../../../apps/order-gateway/example.toml");
    let shown: Vec<_> = example.lines().map(|line| line.split(" #").next().unwrap_or_default()).collect();
    let ilink3 = br#"limits = "l.toml"
[venue]
protocol = "ilink3"
primary = "192.0.2.1:9100"
[venue.ilink3]
session = "ABC"
firm = "007"
[journal]
path = "j"
"#;
    vec![shown.join("\n").into_bytes(), ilink3.to_vec()]
}

pub(super) fn gateway_limits_seeds() -> Vec<Vec<u8>> {
    vec![include_bytes!("../../../apps/order-gateway/limits.toml").to_vec()]
}

/// A file with that content.
fn written(data: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("the temporary directory takes a file");
    file.write_all(data).expect("the temporary directory takes a file");
    file
}

/// Rules of sockets, in either grammar: they answer each question, or the text is refused.
pub(super) fn socket_rules(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let rules = match Rules::parse("rules", &text) {
        Ok(rules) => rules,
        Err(error) => return refused(&error.to_string(), text.trim_start_matches('\u{feff}').as_bytes()),
    };
    for traffic in
        [Traffic::TcpServer, Traffic::TcpClient, Traffic::UdpReceiver, Traffic::UdpSender, Traffic::UdpConnect]
    {
        for (program, application_id) in [("engine", None), ("redis-server", Some("B1")), ("", Some("*"))] {
            for remote in [None, Some("198.51.100.7:53".parse().expect("an address"))] {
                let local = "192.0.2.1:6379".parse().expect("an address");
                let query = Query { program, application_id, traffic, local, remote };
                let decision = rules.role(&query);
                assert!(!decision.why.is_empty() && decision == rules.role(&query), "{query:?} {decision:?}");
            }
        }
    }
}

/// The rules of a broker: they are read whole, or the text is refused.
pub(super) fn broker_rules(data: &[u8]) {
    struct One;

    impl Names for One {
        fn user(&self, name: &str) -> Option<u32> {
            (name == "trader").then_some(1000)
        }

        fn group(&self, name: &str) -> Option<u32> {
            (name == "trading").then_some(7)
        }
    }

    let text = String::from_utf8_lossy(data);
    match parse_broker("rules", &text, "eth1", &One) {
        Ok(rules) => {
            for rule in rules {
                assert!(rule.users.is_some() || rule.groups.is_some() || rule.programs.is_some(), "{rule:?}");
                assert!(rule.ports.iter().all(|ports| *ports.ports.start() > 0 && !ports.ports.is_empty()), "{rule:?}");
                let is_group = |prefix: &Ipv4Prefix| prefix.len() == 0 || prefix.address().is_multicast();
                let is_host = |prefix: &Ipv4Prefix| prefix.len() == 0 || !prefix.address().is_multicast();
                assert!(rule.multicast.iter().all(is_group) && rule.addresses.iter().all(is_host), "{rule:?}");
                assert!(rule.queues.is_none_or(|queues| (1..=128).contains(&queues)), "{rule:?}");
            }
        }
        Err(error) => refused(&error.to_string(), text.trim_start_matches('\u{feff}').as_bytes()),
    }
}

fn check(config: &Config) {
    let worker = config.worker();
    assert!((1..=64).contains(&worker.burst_len) && config.frame_len_max() >= 64);
    assert!(worker.buffers.is_none_or(|count| count > 0));
    let window = config.window();
    assert!(window.packets <= 1 << 20 && config.policy().restart_distance > 0, "{window:?}");
    let _ = (config.capacity(), config.pace(), config.checksum());
    let sets = config.sets();
    assert_eq!(config.formats().count(), sets.len());
    if let Some(live) = config.live() {
        check_live(&live);
    }
    let names: BTreeSet<_> = sets.iter().map(|set| &set.name).collect();
    assert_eq!(names.len(), sets.len(), "two channels of one name");
    let mut groups = BTreeSet::new();
    for line in sets.iter().flat_map(|set| &set.lines) {
        assert!(line.group.ip().is_multicast() && line.group.port() > 0);
        assert!(groups.insert(line.group), "{} is two lines", line.group);
        assert!(line.vlan.is_none_or(|vlan| (1..4_095).contains(&vlan)));
        assert!(line.senders.iter().all(|sender| !sender.is_multicast() && !sender.is_unspecified()));
    }
}

/// The requests of a live run to the kernel and the NIC.
fn check_live(live: &LiveConfig) {
    let queues: BTreeSet<_> = live.queues.iter().collect();
    assert!(!live.queues.is_empty() && queues.len() == live.queues.len(), "{:?}", live.queues);
    assert!(live.vlan.as_slice().iter().all(|tag| (1..4_095).contains(&tag.vid())));
    for len in <[u32; 2]>::from(live.port.ring_lens()) {
        assert!(len.is_power_of_two() && len <= 65_536);
    }
    assert!(live.queues.len() == 1 || live.igmp != IgmpMode::Worker, "queries come on one queue");
    if let Owner::Dedicated(own) = &live.owner {
        assert!(!own.addresses.is_empty());
        let is_near = |via| own.addresses.iter().any(|address| address.contains(via));
        assert!(own.routes.iter().all(|route| is_near(route.via)), "{:?}", own.routes);
    }
}

/// Checks that an error is one sentence; for a text, with a line and a column that exist.
fn refused(sentence: &str, data: &[u8]) {
    assert!(!sentence.contains('\n'), "more than one line: {sentence:?}");
    let Ok(text) = str::from_utf8(data) else { return };
    let place = |word: &str| {
        let behind = sentence.split(word).nth(1).unwrap_or_else(|| panic!("{sentence:?} does not say where"));
        behind.split([',', ':']).next().and_then(|number| number.parse::<usize>().ok()).expect("a number")
    };
    let (line, column) = (place(" line "), place(", column "));
    let lines: Vec<_> = text.split('\n').collect();
    let is_there = lines.get(line.wrapping_sub(1)).is_some_and(|line| (1..=line.chars().count() + 1).contains(&column));
    assert!(is_there, "{sentence:?} names a place that the text has not");
}
