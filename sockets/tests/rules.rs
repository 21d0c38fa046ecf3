//! The file of rules in the documentation decides as its comments say.
#![allow(clippy::unwrap_used, reason = "helpers of tests panic to report")]

use std::path::Path;

use sockets::rules::{Names, Query, Role, Rules, Traffic, load_broker};

#[test]
fn example_of_the_documentation_decides_as_it_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/socket-rules.toml");
    let rules = Rules::load(&path).unwrap();
    let check = |program: &str, traffic, local: &str, remote: &str, expected: (Role, &str)| {
        let (program, application_id) = program.split_once('#').map_or((program, None), |(name, id)| (name, Some(id)));
        let remote = (!remote.is_empty()).then(|| remote.parse().unwrap());
        let query = Query { program, application_id, traffic, local: local.parse().unwrap(), remote };
        let decision = rules.role(&query);
        assert_eq!((decision.role, decision.why), expected, "{query:?}");
    };
    let (server, client) = (Traffic::TcpServer, Traffic::TcpClient);
    check("node_exporter", server, "0.0.0.0:9100", "", (Role::Os, "rule 1 of socket-rules.toml"));
    check("engine", client, "0.0.0.0:0", "198.51.100.7:5000", (Role::Refuse, "rule 2 of socket-rules.toml"));
    check("redis-server", server, "0.0.0.0:6379", "", (Role::Both, "rule 1 of redis-* in socket-rules.toml"));
    check("redis-server", server, "0.0.0.0:16379", "", (Role::Os, "default of redis-* in socket-rules.toml"));
    let group = "239.1.7.7:30500";
    let of_engine = (Role::Offload, "rule 1 of engine in socket-rules.toml");
    check("engine#B1", Traffic::UdpReceiver, group, "", of_engine);
    check("engine", Traffic::UdpReceiver, group, "", (Role::Offload, "default of socket-rules.toml"));
    check("engine", Traffic::UdpConnect, "0.0.0.0:0", "192.0.2.53:53", (Role::Os, "DNS is the kernel's"));
}

struct NoNames;

impl Names for NoNames {
    fn user(&self, _name: &str) -> Option<u32> {
        None
    }

    fn group(&self, _name: &str) -> Option<u32> {
        None
    }
}

#[test]
fn example_of_the_brokers_file_gives_each_interface_its_rules() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/broker-rules.toml");
    let rules = |interface: &str| load_broker(&path, interface, &NoNames).unwrap();
    let names = |interface: &str| rules(interface).into_iter().map(|rule| rule.name).collect::<Vec<_>>();
    let of = |number: u8| format!("rule {number} of broker-rules.toml");
    assert_eq!(names("eth1"), [of(1), of(2), of(3)]);
    assert_eq!(names("eth2"), [of(1), of(3)]);
    assert_eq!(names("eth7"), [of(3)]);
    let engine = &rules("eth2")[0];
    assert_eq!((engine.users.as_deref(), engine.queues, engine.ports.len()), (Some(&[1001][..]), Some(2), 2));
}
